/* Shared by the files of the CUDA backend only. */
#ifndef GB_BACKEND_CUDA_INTERNAL_H
#define GB_BACKEND_CUDA_INTERNAL_H

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>

#include "backend/backend.h"
#include "backend/host/arena.h"
#include "base/error.h"
#include "base/process.h"

struct cuda_backend;

struct gb_pool {
    cudaMemPool_t handle;
    int device;
    bool is_default;
    bool exportable;
    uint64_t max_bytes;   /* as requested; the device's total for the default pool */
    int fd;               /* the pool's handle after the first export, under files_lock; -1: not yet */
    uint64_t limit_bytes; /* max_bytes, or the device's total if that is 0 */
};

/* Page-locked memory that copies of pageable memory go through, in two sizes. */
enum cuda_bounce_size { CUDA_BOUNCE_SMALL, CUDA_BOUNCE_LARGE, CUDA_BOUNCE_SIZES };

struct cuda_bounce {
    struct cuda_bounce *next;
    char *ptr;
};

struct gb_stream {
    cudaStream_t handle;
    int device;
    struct gb_stream *prev; /* of the device's streams, under its streams_lock */
    struct gb_stream *next;
    cudaEvent_t end;             /* record_device records it, under streams_lock */
    pthread_mutex_t lock;        /* held while a piece of the CPU's work is queued as a whole */
    struct cuda_host_work *work; /* under lock; see move.c */
    struct cuda_bounce *bounce[CUDA_BOUNCE_SIZES];
};

struct gb_event {
    cudaEvent_t handle;
    int device;
    bool shared;               /* made for other processes */
    atomic_bool covers_device; /* recorded behind all streams */
};

struct cuda_watch {
    struct cuda_watch *next;
    struct gb_event *event;
    gb_watch_fn *fn;
    void *arg;
    uint64_t since_ns;
    uint64_t poll_at_ns;
};

struct cuda_watch_list {
    struct cuda_watch *head;
    struct cuda_watch **tail;
};

/* One thread per device that polls the watched events; see stream.c. */
struct cuda_completer {
    struct cuda_backend *be;
    int device;
    bool started;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t cond;             /* on CLOCK_MONOTONIC */
    struct cuda_watch_list incoming; /* under lock */
    uint64_t sleep_until_ns;         /* under lock; 0: awake, UINT64_MAX: until a watch comes */
    bool stop;                       /* under lock */
};

struct cuda_device {
    struct gb_device_rec rec; /* all but free_bytes */
    bool has_pools;           /* else its memory comes from cudaMalloc */
    bool exports_fd;
    bool locks_pages; /* of memory that CUDA did not allocate */
    struct gb_pool default_pool;
    cudaStream_t mark_stream; /* gets no work, so that its events complete when they are recorded */
    pthread_mutex_t streams_lock;
    struct gb_stream *streams;  /* under streams_lock; without mark_stream and gather_stream */
    cudaStream_t gather_stream; /* under streams_lock; waits for other streams, see record_device */
    struct cuda_completer completer;
};

/* Functions that the runtime does not have. */
struct cuda_driver {
    PFN_cuMemsetD16Async_v3020 fill16;
    PFN_cuMemsetD32Async_v3020 fill32;
    PFN_cuMemsetD2D32Async_v3020 fill_rows32;
    PFN_cuPointerGetAttribute_v4000 pointer_attribute;
    PFN_cuMemGetAddressRange_v3020 address_range;
    PFN_cuDeviceGet_v2000 device_get;
    PFN_cuDeviceGetAttribute_v2000 device_attribute;
    PFN_cuDeviceGetUuid_v11040 device_uuid;           /* NULL: this driver does not have it */
    PFN_cuStreamWaitValue32_v11070 stream_wait_value; /* NULL: this driver does not have it */
    bool has_virtual_memory;                          /* the driver has all functions below */
    PFN_cuMemGetAllocationGranularity_v10020 mem_granularity;
    PFN_cuMemCreate_v10020 mem_create;
    PFN_cuMemRelease_v10020 mem_release;
    PFN_cuMemAddressReserve_v10020 mem_reserve;
    PFN_cuMemAddressFree_v10020 mem_unreserve;
    PFN_cuMemMap_v10020 mem_map;
    PFN_cuMemUnmap_v10020 mem_unmap;
    PFN_cuMemSetAccess_v10020 mem_set_access;
    PFN_cuMemRetainAllocationHandle_v11000 mem_retain;
    PFN_cuMemExportToShareableHandle_v10020 mem_export;
    PFN_cuMemImportFromShareableHandle_v10020 mem_import;
    PFN_cuMemGetAllocationPropertiesFromHandle_v10020 mem_properties;
};

/* The sort of file that a pool's descriptor is. */
struct cuda_pool_sort {
    bool known;
    mode_t type;
    dev_t dev;
    dev_t rdev;
};

#define CUDA_HOLD_WORDS 16

struct cuda_hold_word {
    _Atomic uint32_t *at;
    uint32_t number; /* the value that the last hold waits for */
    bool taken;
};

struct cuda_hold_words {
    pthread_mutex_t lock;
    _Atomic uint32_t *page; /* page-locked; NULL until the first hold */
    struct cuda_hold_word word[CUDA_HOLD_WORDS];
};

struct cuda_backend {
    struct gb_backend base;
    int device_count;
    struct cuda_device *devices;
    atomic_bool dead; /* set after why is complete, never cleared */
    pthread_mutex_t dead_lock;
    struct gb_error why; /* immutable once dead */
    struct cuda_driver driver;
    uint64_t machine_bytes; /* the memory that this process may have */
    struct gb_memory_budget budget;
    _Atomic uint64_t host_bytes;   /* of kinds pinned and pageable */
    _Atomic uint64_t others_bytes; /* resident, and not among host_bytes: staging memory, and what was imported */
    pthread_mutex_t files_lock;
    struct gb_host_ranges files; /* memory of kinds pinned and pageable, under files_lock */
    pthread_mutex_t imports_lock;
    struct cuda_import *imports; /* device memory of other processes, under imports_lock; held while CUDA opens it */
    struct cuda_pool_sort pool_sort; /* set once, under imports_lock */
    struct gb_host_ranges foreign;   /* host memory of other processes, under imports_lock */
    pthread_mutex_t bounces_lock;
    struct cuda_bounce
        *bounces[CUDA_BOUNCE_SIZES]; /* of no stream, under bounces_lock; freed at the close, which waits */
    struct cuda_hold_words holds;
};

static inline struct cuda_backend *gb_cuda_of(struct gb_backend *be) {
    return (struct cuda_backend *)be;
}

/* --- device.c ----------------------------------------------------------------------------------------------------- */

/* Sets *err to the error of `call`: native error and code, and detail unless *err has one. Clears CUDA's last error.
 * Marks the backend dead if rc says that the device is dead. err may be NULL. Returns -1. */
int gb_cuda_fail(struct cuda_backend *be, cudaError_t rc, const char *call, struct gb_error *err);

bool gb_cuda_dead(struct gb_backend *be, struct gb_error *ret_why);

/* Makes the device current for this thread. Returns 0; -1 if it does not exist or CUDA refuses. */
int gb_cuda_select(struct cuda_backend *be, int device, struct gb_error *err);

/* As gb_cuda_select, and -1 with the reason if the backend is dead. Every entry that can fail begins with it. */
int gb_cuda_enter(struct cuda_backend *be, int device, struct gb_error *err);

/* Finds the driver's functions. */
int gb_cuda_driver_init(struct cuda_backend *be, struct gb_error *err);

/* The attribute's value, or 0 if the driver does not know it. */
int gb_cuda_device_attribute(struct cuda_backend *be, int device, CUdevice_attribute attribute);

/* Sets identity and sizes. */
void gb_cuda_describe(const struct cudaDeviceProp *prop, int device, struct gb_device_rec *ret);

/* Memory of the device that can be had now. CUDA counts an integrated GPU's memory as used while the kernel keeps files
 * in it, so there the kernel's number is right. */
int gb_cuda_free_bytes(struct cuda_backend *be, int device, uint64_t *ret, struct gb_error *err);

/* Sets the releases of driver and runtime, which all devices have in common. */
void gb_cuda_describe_releases(struct cuda_backend *be);

/* Adds capabilities and kinds, after all devices are open and the driver's functions are found. Returns 0 or -1. */
int gb_cuda_describe_reach(struct cuda_backend *be, int device, struct gb_error *err);

/* Lets another process open the pool and the pointer of *what. Takes as long as making a context, and 20 seconds at
 * most. Returns 0; -1 with CANNOT_ADOPT if that process died or did not answer. */
int gb_cuda_probe(const struct gb_import *what, struct gb_error *err);

/* --- stream.c ----------------------------------------------------------------------------------------------------- */

int gb_cuda_completer_init(struct cuda_completer *completer, struct cuda_backend *be, int device, struct gb_error *err);

/* Fires the watches that are left and joins the thread. A zeroed or half-built completer is accepted. */
void gb_cuda_completer_done(struct cuda_completer *completer);

int gb_cuda_watch(struct gb_backend *be, struct gb_event *event, gb_watch_fn *fn, void *arg, struct gb_error *err);

int gb_cuda_stream_create(struct gb_backend *be, int device, struct gb_stream **ret, struct gb_error *err);
void gb_cuda_stream_destroy(struct gb_backend *be, struct gb_stream *stream);
int gb_cuda_stream_sync(struct gb_backend *be, struct gb_stream *stream, struct gb_error *err);
int gb_cuda_stream_query(struct gb_backend *be, struct gb_stream *stream, bool *ret_done, struct gb_error *err);
int gb_cuda_stream_wait(struct gb_backend *be, struct gb_stream *stream, struct gb_event *event, struct gb_error *err);
int gb_cuda_stream_call(struct gb_backend *be, struct gb_stream *stream, void (*fn)(void *), void *arg,
                        struct gb_error *err);
int gb_cuda_event_create(struct gb_backend *be, int device, struct gb_event **ret, struct gb_error *err);
void gb_cuda_event_destroy(struct gb_backend *be, struct gb_event *event);
int gb_cuda_event_record(struct gb_backend *be, struct gb_event *event, struct gb_stream *stream, struct gb_error *err);
int gb_cuda_event_mark(struct gb_backend *be, struct gb_event *event, struct gb_error *err);
int gb_cuda_event_query(struct gb_backend *be, struct gb_event *event, bool *ret_done, struct gb_error *err);
int gb_cuda_event_sync(struct gb_backend *be, struct gb_event *event, struct gb_error *err);
int gb_cuda_event_elapsed(struct gb_backend *be, struct gb_event *start, struct gb_event *end, uint64_t *ret_ns,
                          struct gb_error *err);

int gb_cuda_stream_hold(struct gb_backend *be, struct gb_stream *stream, struct gb_hold **ret, struct gb_error *err);
void gb_cuda_stream_release(struct gb_backend *be, struct gb_hold *hold);
void gb_cuda_holds_done(struct cuda_backend *be);

/* --- memory.c ----------------------------------------------------------------------------------------------------- */

/* Fills the device's default pool and sets its release threshold to GB_UNLIMITED. */
int gb_cuda_default_pool_init(struct cuda_backend *be, int device, struct gb_error *err);

int gb_cuda_pool_default(struct gb_backend *be, int device, struct gb_pool **ret, struct gb_error *err);
int gb_cuda_pool_create(struct gb_backend *be, int device, const struct gb_pool_config *config, struct gb_pool **ret,
                        struct gb_error *err);
void gb_cuda_pool_destroy(struct gb_backend *be, struct gb_pool *pool);
int gb_cuda_pool_config(struct gb_backend *be, struct gb_pool *pool, struct gb_pool_config *ret, struct gb_error *err);
int gb_cuda_pool_configure(struct gb_backend *be, struct gb_pool *pool, const struct gb_pool_config *config,
                           struct gb_error *err);
int gb_cuda_pool_stat(struct gb_backend *be, struct gb_pool *pool, struct gb_pool_stat *ret, struct gb_error *err);
int gb_cuda_pool_reset_peak(struct gb_backend *be, struct gb_pool *pool, struct gb_error *err);
int gb_cuda_pool_trim(struct gb_backend *be, struct gb_pool *pool, uint64_t keep_bytes, struct gb_error *err);

int gb_cuda_pin_alloc(struct gb_backend *be, size_t bytes, void **ret, struct gb_error *err);
void gb_cuda_pin_free(struct gb_backend *be, void *ptr);
int gb_cuda_alloc(struct gb_backend *be, struct gb_pool *pool, struct gb_stream *stream, uint64_t bytes, void **ret,
                  struct gb_error *err);
int gb_cuda_free(struct gb_backend *be, void *ptr, struct gb_stream *stream, struct gb_error *err);
int gb_cuda_copy(struct gb_backend *be, void *dst, const void *src, uint64_t bytes, enum gb_copy_direction direction,
                 struct gb_stream *stream, struct gb_error *err);
int gb_cuda_fill(struct gb_backend *be, void *dst, uint64_t pattern, unsigned width, uint64_t count,
                 struct gb_stream *stream, struct gb_error *err);

/* Returns true if place is in memory that has a file. */
bool gb_cuda_file_has(struct cuda_backend *be, const struct gb_location *place);
int gb_cuda_file_export(struct cuda_backend *be, const struct gb_location *place, uint64_t bytes, bool writable,
                        struct gb_export *ret, struct gb_error *err);
void gb_cuda_files_free(struct cuda_backend *be);

/* Locks the pages of a segment. Returns 0; 1 if CUDA does not lock such memory here; -1. */
int gb_cuda_lock_pages(struct cuda_backend *be, struct gb_host_segment *segment, struct gb_error *err);
int gb_cuda_unlock_pages(struct cuda_backend *be, struct gb_host_segment *segment, struct gb_error *err);

/* The pool of the memory, or NULL. */
cudaMemPool_t gb_cuda_pool_of(struct cuda_backend *be, const void *ptr);

/* The size of an allocation of kind SHARED, or IPC, with that many bytes. */
int gb_cuda_shared_size(struct cuda_backend *be, int device, uint64_t bytes, size_t *ret, struct gb_error *err);
uint64_t gb_cuda_ipc_size(uint64_t bytes);

/* Permits every device that can to read and write the device's memory at the address. Returns 0 or -1. */
int gb_cuda_open_to_devices(struct cuda_backend *be, int device, CUdeviceptr at, size_t size, struct gb_error *err);

int gb_cuda_kind_alloc(struct gb_backend *be, int device, enum gb_kind kind, uint64_t bytes, void **ret,
                       struct gb_error *err);
bool gb_cuda_kind_keeps(struct gb_backend *be, enum gb_kind kind);
int gb_cuda_kind_take(struct gb_backend *be, int device, enum gb_kind kind, uint64_t bytes, int fd, void **ret,
                      struct gb_error *err);
int gb_cuda_kind_free(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, struct gb_error *err);
int gb_cuda_prefetch(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, bool to_cpu,
                     struct gb_stream *stream, struct gb_error *err);
int gb_cuda_attach(struct gb_backend *be, const struct gb_location *place, bool to_cpu, struct gb_stream *stream,
                   struct gb_error *err);
int gb_cuda_attributes(struct gb_backend *be, const struct gb_location *place, struct gb_pool *pool,
                       struct gb_mem_attr *ret, struct gb_error *err);

/* Returns true if device can use peer's memory. */
bool gb_cuda_reaches(int device, int peer);

int gb_cuda_pool_open_to(struct cuda_backend *be, cudaMemPool_t pool, int device, bool *ret, struct gb_error *err);
int gb_cuda_peer_get(struct gb_backend *be, int device, int peer, struct gb_peer_rec *ret, struct gb_error *err);
int gb_cuda_pool_access_set(struct gb_backend *be, struct gb_pool *pool, int device, enum gb_pool_access access,
                            struct gb_error *err);
int gb_cuda_pool_access_get(struct gb_backend *be, struct gb_pool *pool, int device, enum gb_pool_access *ret,
                            struct gb_error *err);
int gb_cuda_event_record_device(struct gb_backend *be, struct gb_event *event, int device, struct gb_error *err);

/* --- move.c ------------------------------------------------------------------------------------------------------- */

/* Frees the descriptions of the CPU's work and gives back the bounce buffers. The stream has drained, or its device is
 * dead. */
void gb_cuda_host_done(struct cuda_backend *be, struct gb_stream *stream);

void gb_cuda_bounces_free(struct cuda_backend *be);

int gb_cuda_move(struct gb_backend *be, const struct gb_location *dst, const struct gb_location *src, uint64_t bytes,
                 struct gb_stream *stream, enum gb_copy_way *ret_way, struct gb_error *err);
int gb_cuda_location_fill(struct gb_backend *be, const struct gb_location *dst, uint64_t pattern, unsigned width,
                          uint64_t count, struct gb_stream *stream, struct gb_error *err);

/* --- share.c ------------------------------------------------------------------------------------------------------ */

int gb_cuda_box(struct gb_backend *be, const struct gb_location *place, void *pinned, const struct gb_box *box,
                enum gb_copy_direction direction, struct gb_stream *stream, struct gb_error *err);

int gb_cuda_export(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, struct gb_pool *pool,
                   enum gb_export_way way, bool writable, struct gb_export *ret, struct gb_error *err);
int gb_cuda_event_create_shared(struct gb_backend *be, int device, struct gb_event **ret, struct gb_error *err);
int gb_cuda_event_export(struct gb_backend *be, struct gb_event *event, unsigned char ret[GB_EXPORT_HANDLE_BYTES],
                         struct gb_error *err);

int gb_cuda_import(struct gb_backend *be, const struct gb_import *what, struct gb_location *ret, struct gb_error *err);
int gb_cuda_import_end(struct gb_backend *be, const struct gb_location *place, struct gb_error *err);
void gb_cuda_imports_free(struct cuda_backend *be);

/* --- opening ------------------------------------------------------------------------------------------------------ */

/* Opens every visible GPU. args must be NULL or empty. ret_note (NULL, or GB_BACKEND_NOTE_SIZE bytes) gets one sentence
 * for the log, on success and on failure. The program itself starts without a driver: the runtime is linked statically
 * and searches for one here. Returns 0 or -1. Errors: UNSUPPORTED without a driver or a device. */
int gb_cuda_open(const char *args, struct gb_backend **ret, char *ret_note, struct gb_error *err);

/* --- processes of the backend ------------------------------------------------------------------------------------- */

/* The probe opens another process's pool and pointer. Returns -1 if argv[0] is not that word; see gb_backend_probe. */
#define GB_CUDA_PROBE "gpubufd-probe"
int gb_cuda_probe_main(int argc, char **argv);

/* The prober starts probes for a daemon under Landlock: the driver writes the names of its threads into /proc, under
 * the process's number, which no rule can name before the process exists. */
#define GB_CUDA_PROBER "gpubufd-prober"
int gb_cuda_prober_main(int argc, char **argv);
/* Starts the prober, once, before Landlock's rules are in force and before threads start. The environment keeps its
 * socket. The prober ends with this process. Returns 0 or -1. */
int gb_cuda_prober_start(struct gb_error *err);

#endif
