"""Re-playing steps over the recorded dependencies of all ranks, as they were and as they might be."""

from .build import build_model
from .model import Model
from .predict import predict_graphs
from .simulate import ContradictionError, Played, simulate

__all__ = ["ContradictionError", "Model", "Played", "build_model", "predict_graphs", "simulate"]
