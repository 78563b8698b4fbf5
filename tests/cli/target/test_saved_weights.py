"""--weights FILE for what libraries save of a net that was trained with racecar: its names begin with "model."."""

import json
import warnings

import pytest
import torch
from safetensors.torch import save_file
from torch.utils.data import DataLoader, TensorDataset

from racecar import Racecar

X = torch.rand(2, 3, 8, 8)
CONV = ["nets:conv", "--input", "1,3,8,8"]


def by_lightning(model, file):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import lightning.pytorch as pl

        from racecar.integrations.lightning import RacecarCallback

        class Module(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.model = model

            def training_step(self, batch, _):
                return self.model(batch[0]).square().mean()

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), 0.0)

        trainer = pl.Trainer(
            max_steps=1, accelerator="cpu", devices=1, callbacks=[RacecarCallback()], logger=False,
            default_root_dir=file.parent, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(Module(), DataLoader(TensorDataset(X), 2))
        trainer.save_checkpoint(file)


def by_accelerate(model, file):
    from accelerate import Accelerator

    Accelerator(cpu=True).save_model(Racecar(model, X), file.parent)
    (file.parent / "model.safetensors").rename(file)


SAVED = {
    "w.pt": lambda model, file: torch.save(Racecar(model, X).state_dict(), file),
    "w.safetensors": lambda model, file: save_file(Racecar(model, X).state_dict(), file),
    "accelerate.safetensors": by_accelerate,
    "lightning.ckpt": by_lightning,
}


@pytest.fixture
def conv(cli):
    cli("explain", *CONV)
    import nets

    torch.manual_seed(3)
    return nets.conv()


@pytest.mark.parametrize("name", SAVED)
def test_explain(cli, conv, tmp_path, capsys, name):
    SAVED[name](conv, tmp_path / name)
    capsys.readouterr()  # what Lightning says
    result = cli("explain", *CONV, "--weights", name)
    assert (result.status, result.out) == (0, cli("explain", *CONV).out)
    assert result.err == f"note: names in {name} begin with 'model.', which was left out\n"


def test_inspect(cli, conv, tmp_path, undrawn):
    """The inspected weights are those of the file."""
    SAVED["w.pt"](conv, tmp_path / "w.pt")
    assert cli("inspect", *CONV, "--limit", "2", "--out", "look", "--weights", "w.pt").status == 0
    values = json.loads((tmp_path / "look" / "report.json").read_text())["singular_vectors_0"]["values"]
    expected = torch.linalg.svdvals(conv[0].weight.detach().flatten(1).double())
    torch.testing.assert_close(torch.tensor(values, dtype=torch.double), expected)


def test_a_target_that_is_a_racecar(cli, conv, tmp_path):
    """The model inside the Racecar is explained; weights of the model and of the Racecar both fit."""
    (tmp_path / "wrapped.py").write_text(
        "import nets, torch\nfrom racecar import Racecar\nrr = Racecar(nets.conv(), torch.rand(2, 3, 8, 8))\n"
    )
    torch.save(conv.state_dict(), tmp_path / "plain.pt")
    SAVED["w.pt"](conv, tmp_path / "w.pt")
    plan = cli("explain", *CONV).out
    for file in ("plain.pt", "w.pt"):
        result = cli("explain", "wrapped:rr", *CONV[1:], "--weights", file)
        assert (result.status, result.out) == (0, plan.replace("nets:conv", "wrapped:rr"))
