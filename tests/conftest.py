"""What every test needs: one thread, inductor imported before warnings become errors, and how hypothesis draws."""

import gc
import importlib
import os
import warnings

from hypothesis import settings


def pytest_configure(config):
    """Import what tests need, but not in the process that only distributes tests to workers."""
    if hasattr(config, "workerinput") or config.getoption("dist", "no") == "no":
        gc.disable()  # until all is imported and collected, which stays
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # inductor's import warns about things of its own
            importlib.import_module("torch._inductor.compile_fx")
        prepare()


def prepare():
    import torch
    from torch._dynamo import guards

    torch.set_num_threads(1)
    # torch.compile times its guards once they are made, with caches flushed, for nothing but its log
    guards.profile_guard_manager = lambda *args: 0.0
    for device in (torch.cuda, torch.xpu, torch.mtia):
        if not device.is_available():  # each torch.manual_seed would be put down for later, with the stack it came from
            for module in (device, getattr(device, "random", device)):
                module._lazy_call = lambda *args, **kwargs: None


def pytest_collection_finish(session):
    """Exempt all that is imported and collected from garbage collection, and collect the rest less often: that took a
    fourteenth of the time of all tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 50)
    gc.enable()


def pytest_collection_modifyitems(items):
    """Those that fork come first: others, such as Ray's, leave threads behind, and a lock that one of them holds would
    never be free in a fork. Then comes what takes long, so that no worker is left alone with it at the end."""
    items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in ("forks", "slow")])


# Few examples and the same ones in every run; `make soak` draws many, and others every time.
settings.register_profile("few", max_examples=8, deadline=None, derandomize=True)
settings.register_profile("soak", max_examples=500, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "few"))
