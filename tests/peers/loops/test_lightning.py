"""Lightning: every epoch has all of its batches, also where a run was stopped in the middle and resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

Make = Callable[..., Any]
Expected = Callable[[int], list[list[int]]]


class Stop(Exception):
    """As if the process was killed."""


class Model(lightning.LightningModule):
    """Writes down the batches that it is given."""

    def __init__(self, stop_at: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen: dict[int, list[list[int]]] = {}
        self.validated: dict[int, list[list[int]]] = {}
        self.stop_at = stop_at

    def training_step(self, batch: dict[str, Any], number: int) -> torch.Tensor:
        if self.stop_at == (self.current_epoch, number):
            raise Stop
        self.seen.setdefault(self.current_epoch, []).append(batch["n"].tolist())
        return self.weight.sum() * 0.0

    def validation_step(self, batch: dict[str, Any], number: int) -> None:
        if not self.trainer.sanity_checking:
            self.validated.setdefault(self.current_epoch, []).append(batch["n"].tolist())

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trainer(folder: Path, *, every: int | None = None, epochs: int = 3, **given: Any) -> Any:
    callbacks = []
    if every is not None:
        callbacks.append(
            lightning.pytorch.callbacks.ModelCheckpoint(
                folder, every_n_train_steps=every, save_top_k=-1, filename="{step}"
            )
        )
    return lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=every is not None,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=callbacks,
        default_root_dir=folder,
        **given,
    )


def loader_of(make: Make, kind: str) -> Any:
    if kind.startswith("stateful"):
        workers = int(kind.removeprefix("stateful "))
        return StatefulDataLoader(make(style="iterable"), batch_size=None, num_workers=workers)
    return make(workers=int(kind))


KINDS = ["0", "2", "stateful 0", "stateful 2"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_epoch_has_all_of_its_batches(make: Make, expected: Expected, kind: str, tmp_path: Path) -> None:
    model = Model()
    trainer(tmp_path).fit(model, loader_of(make, kind))
    assert model.seen == {epoch: expected(epoch) for epoch in range(3)}


def test_epochs_of_fewer_batches_are_different_ones(make: Make, expected: Expected, tmp_path: Path) -> None:
    model = Model()
    trainer(tmp_path, limit_train_batches=5).fit(model, make())
    assert model.seen == {epoch: expected(epoch)[:5] for epoch in range(3)}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_that_was_looked_at_starts_with_the_first_epoch(
    make: Make, expected: Expected, workers: int, tmp_path: Path
) -> None:
    loader, model = make(workers=workers), Model()
    assert loader.peek()["n"].tolist() == expected(0)[0]
    next(iter(loader))
    # Lightning takes two batches of the second one before it trains.
    trainer(tmp_path).fit(model, loader, val_dataloaders=make(workers=workers))
    assert model.seen == {epoch: expected(epoch) for epoch in range(3)}
    assert {epoch: len(batches) for epoch, batches in model.validated.items()} == {0: 16, 1: 16, 2: 16}


# At the end of an epoch StatefulDataLoader and Lightning leave out the next one, with a dataset of torch as well.
STATES = [(kind, step) for kind in KINDS for step in (5, 16, 21, 32, 37) if step % 16 or kind in ("0", "2")]


@pytest.mark.parametrize(("kind", "step"), STATES)
def test_a_checkpoint_resumes_with_the_batches_that_are_left(
    make: Make, expected: Expected, kind: str, step: int, tmp_path: Path
) -> None:
    stopped = Model(stop_at=divmod(step, 16))
    with pytest.raises(Stop):
        trainer(tmp_path, every=step).fit(stopped, loader_of(make, kind))
    epoch, done = divmod(step, 16)
    assert stopped.seen == {
        number: expected(number)[: 16 if number < epoch else done] for number in range(epoch + bool(done))
    }
    model = Model()
    checkpoint = str(tmp_path / f"step={step}.ckpt")
    trainer(tmp_path).fit(model, loader_of(make, kind), ckpt_path=checkpoint, weights_only=False)
    assert model.seen == {number: expected(number)[done if number == epoch else 0 :] for number in range(epoch, 3)}
