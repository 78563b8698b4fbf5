"""The paper's experiments, and their nets as if they had been trained."""

import torch
from torch import nn

from racecar_lab.experiment import Trained
from racecar_lab.experiments import experiment

DIGITS, PEAKS, INFORMATION = (experiment(name) for name in ("digits", "peaks", "information"))
QUICK = DIGITS.Config(**DIGITS.quick.settings)


def trained(one, config, seed=0, stage=0, **more):
    """An untrained net, as if it had been trained."""
    torch.manual_seed(seed)
    stage = one.stages(config)[stage]
    task = one.data(config, seed, None)[stage.task]
    model = one.network(config).eval()
    return Trained(stage, model, task, seed, "Std", torch.device("cpu"), **more)


def lively(model):
    """With biases and running statistics that are not those of a new net."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.bias.normal_()
            if isinstance(module, nn.BatchNorm1d):
                for value in (module.weight, module.bias, module.running_mean):
                    value.normal_()
                module.running_var.uniform_(0.5, 2)
    return model
