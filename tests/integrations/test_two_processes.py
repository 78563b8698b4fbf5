"""Two processes on gloo, trained together by Lightning and by Hugging Face's Trainer, against one process by hand."""

import importlib
import os
import traceback
import warnings
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from racecar import Racecar
from tests.other_process import started

RANKS, BATCH, STEPS, WEIGHT, LR = 2, 4, 3, 0.5, 0.1
X = torch.rand(RANKS * BATCH * STEPS, 6, generator=torch.Generator().manual_seed(1))
Y = (X.sum(1) > 3).long()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))

    def forward(self, x, labels):
        output = self.net(x)
        return {"loss": nn.functional.cross_entropy(output, labels), "logits": output}


def lightning(folder, manual=False):
    """Every process has its share of the batch, in turns."""
    import lightning.pytorch as pl

    from racecar.integrations.lightning import RacecarCallback

    class Module(pl.LightningModule):
        def __init__(self, manual):
            super().__init__()
            self.model, self.automatic_optimization = Net(), not manual

        def training_step(self, batch, batch_idx):
            loss = self.model(*batch)["loss"]
            if not self.automatic_optimization:
                optimiser = self.optimizers()
                optimiser.zero_grad()
                self.manual_backward(loss)
                optimiser.step()
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), LR)

    data = TensorDataset(X, Y)
    loader = DataLoader(data, BATCH, sampler=DistributedSampler(data, shuffle=False))
    module = Module(manual)
    pl.Trainer(
        max_epochs=1, accelerator="cpu", devices=RANKS, strategy="ddp", logger=False, default_root_dir=folder,
        callbacks=[RacecarCallback(weight=WEIGHT)], enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=False, use_distributed_sampler=False,
    ).fit(module, loader)  # fmt: skip
    return module.model


def transformers(folder):
    from transformers import TrainingArguments

    from racecar.integrations.transformers import RacecarTrainer

    rows = [{"x": x, "labels": y} for x, y in zip(X, Y, strict=True)]
    args = TrainingArguments(
        folder, optim="sgd", learning_rate=LR, lr_scheduler_type="constant", max_grad_norm=0.0, report_to=[],
        use_cpu=True, ddp_backend="gloo", save_strategy="no", disable_tqdm=True, num_train_epochs=1,
        per_device_train_batch_size=BATCH, train_sampling_strategy="sequential",
    )  # fmt: skip
    model = Net()
    RacecarTrainer(model=model, args=args, train_dataset=rows, racecar={"weight": WEIGHT}).train()
    return model


SCENARIOS = {
    "lightning": lightning,
    "lightning, manual": lambda folder: lightning(folder, manual=True),
    "transformers": transformers,
}


def work(rank, folder):
    """One process: the weights that each trainer ends with, or what went wrong."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": RANKS}
    os.environ |= {name: str(value) for name, value in own.items()}
    os.environ |= {"TORCHELASTIC_RUN_ID": "test", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}  # as torchrun does
    wait = timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS, timeout=wait)
    results = {}
    for name, scenario in SCENARIOS.items():
        try:
            results[name] = {key: one.detach() for key, one in scenario(f"{folder}/{rank}").state_dict().items()}
        except BaseException:
            results[name] = traceback.format_exc()
    torch.save(results, f"{folder}/{rank}.pt")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("lightning", "transformers"):  # once for both processes, which are forked
            importlib.import_module(f"racecar.integrations.{name}")
    processes = [started(work, rank, str(folder)) for rank in range(RANKS)]
    for process in processes:
        process.join()
    return [torch.load(folder / f"{rank}.pt") for rank in range(RANKS)]


def shares(name, step):
    """Which samples the processes have in a step: torch's sampler deals them out one by one, the Trainer by batches."""
    here = torch.arange(RANKS * BATCH) + step * RANKS * BATCH
    return here.view(BATCH, RANKS).T if "lightning" in name else here.view(RANKS, BATCH)


@pytest.mark.parametrize("name", SCENARIOS)
def test_as_one_process_by_hand(results, name):
    """With the mean of the processes' losses, each of its own share: relative to that."""
    model = Net()
    rr, optimiser = Racecar(model, (X[:BATCH], Y[:BATCH]), weight=WEIGHT), torch.optim.SGD(model.parameters(), LR)
    for step in range(STEPS):
        losses = []
        for chosen in shares(name, step):
            output, loss = rr(X[chosen], Y[chosen])
            losses.append(output["loss"] + loss)
        optimiser.zero_grad()
        torch.stack(losses).mean().backward()
        optimiser.step()
    for one in results:
        assert not isinstance(one[name], str), one[name]
        torch.testing.assert_close(one[name], dict(model.state_dict()), rtol=1e-4, atol=1e-6)
