"""The state of numpy, torch and BLAS that fits and models are written for, whatever the caller's program has set."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading

import numpy as np
from threadpoolctl import ThreadpoolController

# torch's default dtype belongs to the whole process: the first fit that changes it and the last one that ends restore.
_lock, _users = threading.Lock(), []


@contextlib.contextmanager
def usual_numerics():
    """Run a block with numpy's usual error state, and with torch as it is after its import.

    A fit that is charged must not fail because numpy raises an error for an underflow, or because torch makes tensors
    of another dtype or records no gradients. Everything is restored at the end of the block.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(np.errstate(divide="warn", over="warn", invalid="warn", under="ignore"))
        if (torch := sys.modules.get("torch")) is not None:
            _enter_usual_torch(torch, stack)
        yield


def one_blas_thread():
    """Run a block with one thread of BLAS: of many small products, threads that wait for one another cost time."""
    return _thread_pools().limit(limits=1, user_api="blas")


@functools.cache
def _thread_pools():
    # a search among the libraries of the process takes milliseconds, and numpy has loaded its BLAS
    return ThreadpoolController()


def each_in_usual_numerics(items):
    """Iterate over items that are made one by one, each within `usual_numerics`."""
    items, end = iter(items), object()
    while True:
        with usual_numerics():
            item = next(items, end)
        if item is end:
            return
        yield item


def _enter_usual_torch(torch, stack):
    stack.enter_context(_float32(torch))
    if torch.is_inference_mode_enabled():
        stack.enter_context(torch.inference_mode(False))
    if not torch.is_grad_enabled():
        stack.enter_context(torch.enable_grad())
    stack.enter_context(torch.autocast("cpu", enabled=False))
    if torch.cuda.is_available():
        stack.enter_context(torch.autocast("cuda", enabled=False))
    if torch.empty(0).device.type != "cpu":
        stack.enter_context(torch.device("cpu"))


@contextlib.contextmanager
def _float32(torch):
    with _lock:
        _users.append(torch.get_default_dtype())
        if _users[0] != torch.float32:
            torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        with _lock:
            before = _users[0]
            _users.pop()
            if not _users and before != torch.float32:
                torch.set_default_dtype(before)
