"""The daemon's answers as typed dictionaries, with the keys that GET /openapi.json describes.

A key that an answer may lack is NotRequired. A newer daemon may send more keys. ``Dict[str, Any]`` is used if the
document is large and meant for people or tools: GET /openapi.json has all its keys.
"""
from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence, TypedDict, Union

if sys.version_info >= (3, 11):
    from typing import NotRequired
elif TYPE_CHECKING:
    from typing_extensions import NotRequired


class DeviceId(TypedDict):
    """Index and UUID, because an index alone does not identify a device."""

    index: int
    uuid: str


class Side(TypedDict):
    """The memory of one side of a mirrored buffer. bytes: its size, 0 without memory; pinned: of the host side."""

    bytes: int
    current: bool
    owned: bool
    pinned: NotRequired[bool]


class Sides(TypedDict):
    """Both sides of a mirrored buffer."""

    host: Side
    device: Side


class ListedBuffer(TypedDict):
    """Named bytes, as a list has them. generation rises with every write. state: ready, partial, lost, or stored if the
    bytes are on disk and not in memory. tier: where a read gets the bytes from: device, host or disk; None if they are
    lost. durability: none, behind or sync. stored_generation: the generation whose bytes are on disk for good; None: no
    generation is. damaged: True if the bytes on disk were found damaged or missing. spill: where bytes that are not
    durable may go when others want the memory: never, host or disk. resident: True if bytes leave memory on request
    alone."""

    name: str
    session: str
    bytes: int
    dtype: str
    shape: List[int]
    kind: str
    device: DeviceId
    pool: Optional[str]
    stream: str
    state: str
    generation: int
    durability: str
    stored_generation: Optional[int]
    damaged: bool
    tier: Optional[str]
    spill: str
    resident: bool
    crc32c: Optional[str]
    labels: Dict[str, str]
    mirrored: bool
    head: Optional[str]
    sides: Optional[Sides]
    sealed: bool
    adopted: bool
    leases: int
    escaped: bool
    created_at: str
    updated_at: str


class Buffer(ListedBuffer):
    """Named bytes. etag is the value for if_match. After put, copy, fill and verify it is the content's tag, else the
    metadata's, which changes with labels, too. A change accepts either; get accepts the content's. attributes: of info,
    if they were asked for. copied and way: of a copy."""

    etag: str
    attributes: NotRequired[Dict[str, Any]]
    copied: NotRequired[Dict[str, Any]]
    way: NotRequired[str]


class TensorGiven(TypedDict):
    """A tensor of a buffer that is to be made; without shape a scalar."""

    name: str
    dtype: Any
    shape: NotRequired[Sequence[int]]


class ListedTensor(TypedDict):
    """A tensor of a buffer. offset: where its bytes begin in the buffer's memory. alias_of: the name is another one of
    that tensor."""

    name: str
    dtype: str
    shape: List[int]
    bytes: int
    offset: int
    alias_of: NotRequired[str]


class Loaded(NamedTuple):
    """What ``Client.load_into`` left as it was: names of the module that no buffer has, names of buffers that the
    module has not, and names of the module that are on the device meta still, as buffers that no file has."""

    missing: List[str]
    unexpected: List[str]
    on_meta: List[str]


class Put(Buffer):
    """A buffer that was put. road: how the bytes went: device, or host. warning: what the bytes seem to be, if not the
    array that was meant."""

    road: str
    warning: NotRequired[str]


class Stored(TypedDict):
    """The bytes of a buffer on disk. wrote: False if they were there already."""

    stored_generation: int
    bytes: int
    wrote: bool


class Skipped(TypedDict):
    """A buffer that could not be moved, and the code of the reason."""

    buffer: str
    code: str


class Swept(TypedDict):
    """What became of a session's buffers. skipped has the first 100 of those that could not be moved."""

    buffers: int
    bytes: int
    skipped_buffers: int
    skipped: List[Skipped]


class DamagedFile(TypedDict):
    """A file of a checkpoint. code: content_damaged, or content_lost if it is not there."""

    file: str
    code: str


class Checkpoint(TypedDict):
    """The buffers of a session as they were at one moment. state: complete, or incomplete if clients still bring its
    files; then as_of is None, and session may be. damaged has the first 100 files that the latest scrub or verify of
    each found so."""

    name: str
    session: Optional[str]
    state: str
    as_of: Optional[str]
    buffers: int
    bytes: int
    damaged_files: int
    damaged: List[DamagedFile]


class CheckpointMade(Checkpoint):
    """A new checkpoint. linked_bytes were on disk already; written_bytes were read and written. skipped has the first
    100 of those that were left out."""

    linked_bytes: int
    written_bytes: int
    skipped_buffers: int
    skipped: List[Skipped]


class DamagedBuffer(DamagedFile):
    """A buffer of a checkpoint, and its file there."""

    buffer: str


class CheckpointVerified(TypedDict):
    """What a reading of a checkpoint's files found. damaged has the first 100 buffers whose files differ or are
    missing."""

    match: bool
    buffers: int
    bytes: int
    damaged_buffers: int
    damaged: List[DamagedBuffer]


class CheckpointRestored(TypedDict):
    """What was restored. replaced: buffers that were there before; loaded: those whose bytes are in memory. skipped has
    the first 100 that could not be loaded."""

    checkpoint: str
    session: str
    buffers: int
    bytes: int
    replaced: int
    loaded: int
    skipped_buffers: int
    skipped: List[Skipped]


class Scrub(TypedDict):
    """A reading of all files to find damage: the one that is running, or the latest. last_ended is None if none ever
    ended."""

    state: str
    began: Optional[str]
    files: int
    bytes: int
    damaged: int
    healed: int
    skipped: int
    last_ended: Optional[str]


class ScrubFind(TypedDict):
    """A damaged file, by its buffer. code: content_damaged, or content_lost if the file is missing."""

    session: str
    buffer: str
    code: str
    healed: bool


class Scrubbed(TypedDict):
    """What a scrub found. found has the first 100 damaged files; healed were written again from memory."""

    began: str
    files: int
    bytes: int
    damaged: int
    healed: int
    skipped: int
    found: List[ScrubFind]


class Storage(TypedDict):
    """The folder of the bytes of durable buffers. state: ready, full, failed or unavailable, for the reason in error;
    none if there is no folder. stored_buffers are on disk and not in memory. The counts are since the daemon began."""

    state: str
    error: Optional[str]
    dir: NotRequired[str]
    free_bytes: NotRequired[int]
    stored_buffers: int
    writes: int
    written_bytes: int
    failures: int
    damaged: int
    loads: int
    loaded_bytes: int
    load_failures: int
    evictions: int
    evictions_for_room: int
    evictions_to_host: int
    loads_from_host: int
    reloads_within_minute: int
    cold_reads: int
    host: "HostTier"
    scrub: NotRequired[Scrub]


class HostTier(TypedDict):
    """Host memory for bytes that have left a device."""

    limit_bytes: int
    used_bytes: int
    kept_bytes: int
    buffers: int


class LastTransfer(TypedDict):
    """The times of a buffer's last upload or download of at least 1 MiB."""

    direction: str
    bytes: int
    queue_ms: float
    copy_ms: float
    finished_at: str


class Quota(TypedDict, total=False):
    """Limits that a session is to have; None: no limit."""

    bytes: Optional[int]
    buffers: Optional[int]
    pinned_bytes: Optional[int]
    stored_bytes: Optional[int]


class Limits(TypedDict):
    """Limits of a session as they are; None: no limit."""

    bytes: Optional[int]
    buffers: Optional[int]
    pinned_bytes: Optional[int]
    stored_bytes: Optional[int]


class ListedSession(TypedDict):
    """A namespace with an owner, as a list has it. Its durability and spill are those of buffers that are made without.
    Buffers of sessions of a lower priority leave memory first. fleet: of one that is registered, with ``epoch`` and
    ``on_partition``, and with ``replicas`` and ``holders`` if other nodes are to have copies; of one that was set aside
    because another node has its name now, with ``superseded`` and the ``epoch`` that it had."""

    name: str
    labels: Dict[str, str]
    quota: Limits
    idle_ttl_s: int
    durability: str
    spill: str
    priority: int
    pool: str
    current_pools: List[Optional[str]]
    used_bytes: int
    used_pinned_bytes: int
    used_stored_bytes: int
    buffers: int
    created_at: str
    updated_at: str
    fleet: Optional[Dict[str, Any]]


class Session(ListedSession):
    """A namespace with an owner. etag is the value for if_match."""

    etag: str


class Reuse(TypedDict, total=False):
    """The policies by which a pool is to reuse freed memory on another stream, as in CUDA."""

    follow_event_dependencies: bool
    allow_opportunistic: bool
    allow_internal_dependencies: bool


class Reusing(TypedDict):
    """The policies that a pool has."""

    follow_event_dependencies: bool
    allow_opportunistic: bool
    allow_internal_dependencies: bool


class Pool(TypedDict):
    """Stream-ordered memory of one device. released_bytes, reserved_before_bytes and reserved_after_bytes: of trim."""

    name: str
    device: DeviceId
    max_bytes: Optional[int]
    release_threshold_bytes: Optional[int]
    reuse: Reusing
    exportable: bool
    exported: bool
    kept_bytes: int
    used_bytes: int
    used_peak_bytes: int
    reserved_bytes: int
    reserved_peak_bytes: int
    allocations: int
    reuses: int
    growths: int
    frees: int
    failures: int
    failures_by_reason: Dict[str, int]
    largest_bytes: int
    retries: int
    trims: int
    state: str
    first_use_bytes: int
    buffers: int
    allocated_bytes: int
    freed_bytes: int
    access: List[Dict[str, Any]]
    released_bytes: NotRequired[int]
    reserved_before_bytes: NotRequired[int]
    reserved_after_bytes: NotRequired[int]
    note: NotRequired[str]
    created_at: Optional[str]
    updated_at: Optional[str]


class Stream(TypedDict):
    """A named sequence of work on a device."""

    name: str
    session: str
    busy: bool
    devices: int
    created_at: str


class Hold(TypedDict):
    """A stream that is kept busy, and until when."""

    session: str
    stream: str
    device: DeviceId
    ms: int
    held_until: str


class Event(TypedDict):
    """A point in a stream's order that another stream can wait for."""

    name: str
    session: str
    recorded: bool
    done: bool
    stream: Optional[str]
    created_at: str


class Device(TypedDict):
    """One GPU, or one that the host backend simulates."""

    index: int
    uuid: str
    name: str
    total_bytes: int
    free_bytes: int
    pending_free_bytes: int
    integrated: bool
    cpu_access: bool
    compute_capability: Optional[str]
    driver: Optional[str]
    cuda_driver: Optional[str]
    cuda_runtime: Optional[str]
    kinds: Dict[str, Dict[str, Any]]
    capabilities: Dict[str, Dict[str, Any]]
    peers: List[Dict[str, Any]]
    health: Dict[str, Any]


class Operation(TypedDict):
    """An asynchronous operation. state: queued, running, done, failed or cancelled. result and problem: not of a list.
    progress, not of a list: ``bytes`` and ``total_bytes`` of a copy from outside that runs."""

    id: str
    kind: str
    target: str
    session: Optional[str]
    stream: Optional[str]
    state: str
    created_at: str
    started_at: Optional[str]
    ended_at: Optional[str]
    expires_at: Optional[str]
    status: Optional[int]
    progress: NotRequired[Optional[Dict[str, Any]]]
    result: NotRequired[Optional[Dict[str, Any]]]
    problem: NotRequired[Optional[Dict[str, Any]]]


class AuditRecord(TypedDict):
    """A record of the audit. What does not apply is absent. A refusal that was repeated is one record with a ``count``.
    An event ``audit.refusals`` stands for ``count`` refusals without a record of their own, ``audit.gap`` for ``count``
    records that are missing."""

    id: int
    at: str
    event: str
    method: NotRequired[str]
    route: NotRequired[str]
    code: NotRequired[str]
    request_id: NotRequired[str]
    address: NotRequired[str]
    token: NotRequired[str]
    certificate: NotRequired[str]
    session: NotRequired[str]
    object: NotRequired[str]
    token_id: NotRequired[int]
    status: NotRequired[int]
    bytes: NotRequired[int]
    count: NotRequired[int]


class Lease(TypedDict):
    """A mapping of a buffer by a process, or (if expires_at is given) an export, which has no process."""

    lease: str
    session: str
    buffer: str
    mode: str
    way: str
    pid: int
    uid: int
    since: str
    expires_at: Optional[str]
    generation: int
    bytes: int
    state: str


class Exported(TypedDict):
    """A handle of a buffer's memory (a cudaIpcMemHandle_t in base64). NVIDIA Triton registers it as JSON."""

    raw_handle: Dict[str, str]
    device_id: int
    byte_size: int
    lease: str
    expires_at: str
    session: str
    buffer: str
    mode: str
    offset: int
    dtype: str
    shape: List[int]
    generation: int
    etag: str
    device: DeviceId
    kind: str


class Verified(TypedDict):
    """The result of reading a buffer's bytes. match: None if there was nothing to compare them with."""

    match: Optional[bool]
    crc32c: str
    stored_crc32c: Optional[str]
    generation: int
    bytes: int
    digest: Dict[str, str]


class FeedEvent(TypedDict):
    """An event of the feed; keys that do not apply are left out."""

    id: int
    at: str
    type: str
    session: NotRequired[str]
    pool: NotRequired[str]
    buffer: NotRequired[str]
    device: NotRequired[DeviceId]
    bytes: NotRequired[int]
    count: NotRequired[int]
    generation: NotRequired[int]
    head: NotRequired[str]
    lease: NotRequired[str]
    detail: NotRequired[str]


class BatchReply(TypedDict):
    """One result for each operation, in their order."""

    results: List[Dict[str, Any]]
    done: int
    failed: int


class PassedOver(TypedDict):
    """A way of mapping that was not possible, and why."""

    way: str
    reason: str


class FleetState(TypedDict):
    """A daemon within its fleet. state: joined, alone, expired or duplicate; none, and nothing else, without a fleet.
    fleet_uuid: None if the node does not know it yet."""

    state: str
    since: NotRequired[Optional[str]]
    why: NotRequired[Optional[str]]
    fleet: NotRequired[str]
    node: NotRequired[str]
    uuid: NotRequired[str]
    incarnation: NotRequired[int]
    cluster_id: NotRequired[str]
    urls: NotRequired[Dict[str, str]]
    labels: NotRequired[Dict[str, str]]
    draining: NotRequired[bool]
    hub: NotRequired[bool]
    fleet_uuid: NotRequired[Optional[str]]


class NodeDevice(TypedDict):
    """A device of a node. committed_bytes: quotas of the node's sessions; those without one count by what they use."""

    uuid: str
    name: str
    bytes: int
    free_bytes: int
    committed_bytes: int


class Node(TypedDict):
    """A daemon that is registered in the fleet. urls: its addresses, by networks."""

    name: str
    alive: bool
    draining: bool
    version: str
    labels: Dict[str, str]
    urls: Dict[str, str]
    devices: List[NodeDevice]
    uuid: str
    incarnation: Optional[int]


class Holder(TypedDict):
    """A node that keeps copies of a session's sealed buffers. current: it has all. problem: why something did not come;
    None: nothing."""

    node: str
    current: bool
    buffers: int
    bytes: int
    problem: Optional[str]


class Tenant(TypedDict):
    """Sessions of the fleet whose quotas have a limit together. limit_bytes: None: no limit. used_bytes: the sum of the
    quotas."""

    name: str
    limit_bytes: Optional[int]
    used_bytes: int
    sessions: int


class Kept(TypedDict):
    """Copies that a node keeps. owner: the node that has the session. local: the session there in which they are; None:
    not made yet."""

    session: str
    owner: str
    local: Optional[str]
    current: bool
    buffers: int
    bytes: int
    problem: Optional[str]


class Registered(TypedDict):
    """What the fleet knows of a session and of its owner."""

    name: str
    node: str
    epoch: int
    on_partition: str
    failover_after_s: NotRequired[int]
    tenant: NotRequired[str]
    replicas: NotRequired[int]
    holders: NotRequired[List[str]]
    labels: Dict[str, str]


class FleetSession(Registered):
    """A session that is registered in the fleet."""

    quota: Dict[str, Optional[int]]


class Owner(Registered):
    """A registered session, and how its owner is reached. url: of the session. stale: the directory is silent, and this
    is what the node that was asked remembers. absent_s: seconds since which the owner has not been alive."""

    url: str
    owner_alive: bool
    absent_s: int
    stale: bool


class Placed(ListedSession):
    """A session that was placed at a node. url: of the session."""

    node: str
    url: str


class Moved(TypedDict):
    """A session that went to another node. former: the ``node`` and ``epoch`` that it had; pulled_bytes: with those
    that were brought again, as they had changed; rounds: 0 if it was there already; frozen_ms: how long writers waited;
    skipped: buffers whose bytes the former node had not, the first ones of skipped_buffers, each with ``name`` and
    ``code``."""

    name: str
    node: str
    epoch: int
    url: NotRequired[str]
    former: NotRequired[Dict[str, Any]]
    buffers: NotRequired[int]
    bytes: NotRequired[int]
    pulled_bytes: NotRequired[int]
    rounds: NotRequired[int]
    frozen_ms: NotRequired[float]
    skipped_buffers: NotRequired[int]
    skipped: NotRequired[List[Dict[str, str]]]


class FleetStats(TypedDict):
    """Numbers of all nodes. nodes: each with ``node``, ``age_s`` and ``stats``; missing: those that did not answer,
    with ``why``."""

    nodes: List[Dict[str, Any]]
    missing: List[Dict[str, str]]
    sums: Dict[str, Any]


class Target(TypedDict):
    """A node as Prometheus's http_sd takes it."""

    targets: List[str]
    labels: Dict[str, str]


QuotaGiven = Union[Quota, Limits]
ReuseGiven = Union[Reuse, Reusing]
