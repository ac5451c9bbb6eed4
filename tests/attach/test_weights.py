"""What the weights of a training tell."""

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningDataModule, LightningModule

from strobe.attach.weights import Looks, embedded, large_hyperparameters, unused_gradients


def test_the_share_of_embeddings_leaves_out_what_a_layer_shares() -> None:
    class Words(torch.nn.Module):
        def __init__(self, *, tied: bool, sparse: bool = False) -> None:
            super().__init__()
            self.words, self.last = torch.nn.Embedding(30, 2, sparse=sparse), torch.nn.Linear(2, 30, bias=False)
            if tied:
                self.last.weight = self.words.weight

    assert embedded(Words(tied=False).modules()) == 0.5
    assert embedded(Words(tied=True).modules()) == embedded(Words(tied=False, sparse=True).modules()) == 0.0
    assert embedded([torch.nn.ReLU()]) is None


def test_gradients_that_no_optimizer_uses_are_told_and_those_of_another_optimizer_are_not() -> None:
    teacher, student = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
    model = torch.nn.Sequential(teacher, student)
    optimizer = torch.optim.SGD(student.parameters(), 0.1)
    assert unused_gradients(model.modules(), [optimizer]) is None
    model(torch.ones(2, 3)).sum().backward()
    assert unused_gradients(model.modules(), [optimizer]) == 12 / 16
    teacher.requires_grad_(False)
    assert unused_gradients(model.modules(), [optimizer]) == 0.0
    teacher.requires_grad_(True)
    own = torch.optim.SGD(teacher.parameters(), 0.1)  # that the script keeps to itself
    assert unused_gradients(model.modules(), [optimizer]) == 0.0
    assert own.param_groups
    assert unused_gradients(student.modules(), []) == 0.0


def test_what_a_loop_trains_is_found_by_its_optimizers_and_what_learns_for_nothing_by_its_gradients() -> None:
    words, last = torch.nn.Embedding(30, 2).double(), torch.nn.Linear(2, 30, bias=False).double()
    elsewhere, teacher = torch.nn.Linear(90, 90), torch.nn.Linear(2, 2, bias=False).double()
    elsewhere(torch.ones(90)).sum().backward()  # before, and never again
    optimizer = torch.optim.SGD([*words.parameters(), *last.parameters()], 0.1)
    looks = Looks()
    for _ in range(2):
        optimizer.zero_grad()
        last(teacher(words(torch.tensor([1])))).sum().backward()
        looks.look([optimizer])
    assert looks.over
    assert looks.told == {"weights": "float64", "embedded": 0.5, "unused_gradients": 4 / 124}


def test_a_network_may_have_a_method_parameters_of_its_own() -> None:
    class Learner(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vars = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(3))])

        def parameters(self) -> torch.nn.ParameterList:  # type: ignore[override]
            return self.vars

    learner, looks = Learner(), Looks()
    optimizer = torch.optim.SGD(learner.parameters(), 0.1)
    for _ in range(2):
        learner.vars[0].sum().backward()
        looks.look([optimizer])
    assert looks.told["weights"] == "float32"


@pytest.mark.filterwarnings("ignore:Attribute 'teacher' is an instance")  # Lightning's own advice
def test_large_hyperparameters_are_told_by_name() -> None:
    class Student(LightningModule):
        def __init__(self, teacher: torch.nn.Module, answers: dict[str, torch.Tensor], rate: float) -> None:
            super().__init__()
            self.save_hyperparameters(ignore=ignored)

    given = torch.nn.Linear(600, 600, bias=False), {"train": torch.zeros(500_000), "test": torch.zeros(2)}, 0.1
    ignored = ["teacher"]
    assert large_hyperparameters(Student(*given)) == {"answers": 2_000_008}
    ignored = ["answers"]
    assert large_hyperparameters(Student(*given)) == {"teacher": 600 * 600 * 4}
    ignored = ["answers", "teacher"]
    assert large_hyperparameters(Student(*given)) == {}
    assert large_hyperparameters(torch.nn.Linear(2, 2), None) == {}


def test_those_of_a_data_module_are_in_checkpoints_too() -> None:
    class Tables(LightningDataModule):
        def __init__(self, table: object) -> None:
            super().__init__()
            self.save_hyperparameters()

    assert large_hyperparameters(None, Tables(torch.zeros(500_000))) == {"table": 2_000_000}
    assert large_hyperparameters(None, Tables(np.zeros(500_000))) == {"table": 4_000_000}
    assert large_hyperparameters(None, Tables(torch.eye(600).to_sparse())) == {}
