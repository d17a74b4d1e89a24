"""gpubuf: arrays in GPU memory that the daemon gpubufd owns and gives out by name.

>>> import gpubuf, numpy as np
>>> client = gpubuf.Client()
>>> client.put("weights", np.ones((1024, 1024), np.float32), kind="shared")["generation"]
1
>>> client.get("weights", slice=np.s_[0, :4])
array([1., 1., 1., 1.], dtype=float32)
>>> with client.map("weights") as m:           # the very bytes, without a copy
... t = torch.from_dlpack(m)
>>> client.load_into(model, "llama")           # the tensors of one buffer, without a copy
"""
from . import errors
from ._aio import AsyncClient
from ._collections import Devices, Events, Leases, Operations, Pools, Sessions, Streams
from ._feed import Feed
from ._kinds import StoredAsBytes
from .adoption import Adoption
from .client import Client
from .errors import *  # noqa: F401,F403
from .fleet import Fleet
from .mapping import Mapping
from .tables import Tensors
from .tensors import DeviceArray

__version__ = "0.1.0"
__all__ = ["Adoption", "AsyncClient", "Client", "DeviceArray", "Devices", "Events", "Feed", "Fleet", "Leases",
           "Mapping", "Operations", "Pools", "Sessions", "StoredAsBytes", "Streams", "Tensors", "errors"]
__all__ += errors.__all__
