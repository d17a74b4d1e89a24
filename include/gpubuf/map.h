/* A buffer's memory in this process, without a copy. Part of <gpubuf/gpubuf.h>.
 *
 * Over the daemon's UNIX socket. The connection is the lease: when this process ends, however, so do its mappings, and
 * as long as one lives the daemon neither frees nor overwrites the bytes. All mappings of a client share one
 * connection.
 *
 * Nothing here needs CUDA at link time. For ways other than memfd libcuda.so.1 is opened when the first such buffer is
 * mapped, and the device's primary context is used, as the CUDA runtime and all that is built on it do; from the first
 * mapping on it is held until the client and its mappings are gone. */
#ifndef GPUBUF_MAP_H
#define GPUBUF_MAP_H

#include <gpubuf/data.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpubuf_mapping gpubuf_mapping;

/* The ways, in the order in which the daemon tries them; bits of gpubuf_map_params.ways. */
enum gpubuf_way {
    GPUBUF_WAY_VMM = 1,    /* virtual-memory handle: kind shared of a GPU, of any size */
    GPUBUF_WAY_POOL = 2,   /* a pointer into an exportable pool */
    GPUBUF_WAY_LEGACY = 4, /* cudaIpcGetMemHandle: kind ipc */
    GPUBUF_WAY_MEMFD = 8,  /* shared host memory */
};

struct gpubuf_map_params {
    bool write;    /* for writing too; the daemon then counts a new generation at the beginning and at the end */
    unsigned ways; /* the only ones to be tried; 0: all. Without a libcuda 0 means memfd alone; see passed_over */
    uint32_t wait_s;
    /* CUDA's number of the device in this process, where it is not found by the UUID; -1 and 0: by the UUID. N + 1. */
    int cuda_device;
    /* Other devices that are to reach the memory, by CUDA's numbers in this process: of the ways vmm and pool. A pool
     * stays open to them while this process has it. */
    const int *access_devices;
    size_t access_count;
    uint64_t finished_event; /* 1: with an event for gpubuf_mapping_finish() */
    uint64_t room[5];
};

#define GPUBUF_WAYS 4

/* All of it stays as it is while the mapping lives. */
struct gpubuf_mapping_info {
    void *memory;           /* where the CPU reads it; NULL where only the device can */
    uint64_t device_memory; /* a CUdeviceptr; 0 for host memory */
    uint64_t bytes;         /* of the buffer */
    uint64_t generation;
    bool write;
    enum gpubuf_way way;
    char way_name[GPUBUF_WORD_SIZE];
    char lease[GPUBUF_ID_SIZE];
    char session[GPUBUF_NAME_SIZE];
    char buffer[GPUBUF_NAME_SIZE];
    char kind[GPUBUF_WORD_SIZE];
    char dtype[GPUBUF_WORD_SIZE];
    char etag[GPUBUF_ETAG_SIZE];
    unsigned ndim;
    uint64_t shape[GPUBUF_DIMS_MAX];
    struct gpubuf_device_id device;
    int cuda_device; /* its number in this process; -1 for host memory */
    size_t passed_over_count;
    struct {
        char way[GPUBUF_WORD_SIZE];
        char reason[256];
    } passed_over[GPUBUF_WAYS];
    uint64_t room[8];
};

/* Maps the present content of a buffer. params may be NULL: for reading, any way. If writes of the device still run,
 * device memory comes with an event: see gpubuf_mapping_wait(). The driver enforces read-only device memory only
 * where it can. The caller ends *ret with gpubuf_unmap(). Returns 0 or -1. Errors: BUFFER_NOT_FOUND, BUFFER_BUSY,
 * SEALED, MAP_NOT_PERMITTED, LOCAL_ONLY, CANNOT_MAP, ADOPTED, LIMIT_REACHED. */
int gpubuf_map(gpubuf_client *client, const char *session, const char *buffer, const struct gpubuf_map_params *params,
               gpubuf_mapping **ret, struct gpubuf_error *err);

/* Describes a mapping. mapping: one that lives. Any thread. Returns a value of the mapping, which never changes. */
const struct gpubuf_mapping_info *gpubuf_mapping_info_of(const gpubuf_mapping *mapping);

/* A tensor of a buffer that holds several: of dtype "tensors", as a safetensors file. */
struct gpubuf_tensor {
    const char *name;     /* UTF-8 */
    const char *alias_of; /* the tensor of which the name is another one; NULL: none */
    char dtype[GPUBUF_WORD_SIZE];
    unsigned ndim;
    uint64_t shape[GPUBUF_DIMS_MAX];
    uint64_t bytes;
    uint64_t offset; /* where it begins in the mapping's memory; a multiple of 256, unless it has no bytes */
    uint64_t room[3];
};

/* Lists the tensors of a mapped buffer, in the order of their bytes, and then their aliases. The first call reads the
 * header at the beginning of the memory, from a device after the earlier writes of the buffer. mapping: one that lives.
 * *ret, which may not be NULL, belongs to the mapping and is valid as long as that lives; *ret_count: how many there
 * are. Any thread. Returns 0 or -1. Errors: UNSUPPORTED_ARRAY if the buffer is one tensor, or a header no header;
 * CANNOT_MAP if the driver refuses. */
int gpubuf_mapping_tensors(gpubuf_mapping *mapping, const struct gpubuf_tensor **ret, size_t *ret_count,
                           struct gpubuf_error *err);

/* Finds a tensor of a mapped buffer by its name or an alias. mapping, *ret: as of gpubuf_mapping_tensors(). name: in
 * UTF-8. Any thread. Returns 0 or -1. Errors: TENSOR_NOT_FOUND, and those of gpubuf_mapping_tensors(). */
int gpubuf_mapping_tensor(gpubuf_mapping *mapping, const char *name, const struct gpubuf_tensor **ret,
                          struct gpubuf_error *err);

/* Makes later work on a CUDA stream wait, on the device, for earlier writes of the mapping's buffer. stream: a
 * CUstream, as cudaStream_t is; NULL: the default stream. Any thread. Returns 0, also if no such write runs, or -1.
 * Errors: CANNOT_MAP if the driver refuses. */
int gpubuf_mapping_wait(gpubuf_mapping *mapping, void *stream, struct gpubuf_error *err);

/* Records the event by which this process says that it has finished with the memory: the work that is queued on the
 * stream now is its last. gpubuf_unmap() then waits for that work. So does the daemon, however the lease ends: until
 * then it neither writes nor frees the memory. mapping: one that was made with finished_event; stream: as for
 * gpubuf_mapping_wait(). Any thread. Returns 0, also for host memory, or -1. Errors: BAD_ARGUMENT if the mapping has no
 * event, CANNOT_MAP if the driver refuses. */
int gpubuf_mapping_finish(gpubuf_mapping *mapping, void *stream, struct gpubuf_error *err);

/* Has the daemon copy bytes of a buffer into the mapped memory, which has them on return. mapping: all mappings of
 * its buffer must be this client's; from: "session/buffer", or "buffer" of the same session; from_offset, offset: in
 * the source and in the mapping; bytes: 0 means all. With POST .../copy for the other direction a pinned
 * buffer moves bytes without a socket. Any thread. Returns 0 or -1. Errors: MAPPED, BUFFER_NOT_FOUND, CONTENT_LOST,
 * INVALID_ARGUMENT. */
int gpubuf_mapping_load(gpubuf_mapping *mapping, const char *from, uint64_t from_offset, uint64_t offset,
                        uint64_t bytes, struct gpubuf_error *err);

/* Whether the daemon still holds the connection of the mapping. If it does not, the memory stays readable and what
 * is written there is lost. A lease that an administrator ended is not seen here but by gpubuf_mapping_current().
 * Any thread. Returns true or false. */
bool gpubuf_mapping_alive(const gpubuf_mapping *mapping);

/* Asks the daemon whether the mapping is still the content of the buffer. *ret is false if that was replaced,
 * deleted or lost, if an administrator ended the lease, or if the daemon is gone. Any thread. Returns 0 or -1.
 * Errors: those of every request. */
int gpubuf_mapping_current(gpubuf_mapping *mapping, bool *ret, struct gpubuf_error *err);

/* A descriptor for poll(): readable when the daemon of the mapping goes, and at other times, so that
 * gpubuf_mapping_alive() must be asked. The mapping owns it; nothing may be read from it. Any thread. Returns the
 * descriptor. */
int gpubuf_mapping_poll_fd(const gpubuf_mapping *mapping);

/* Ends the mapping in this process and tells the daemon. All work on the memory must have ended, or be before
 * gpubuf_mapping_finish(); the mapping is gone
 * even on failure. mapping: NULL is permitted. Any thread. Returns 0 or -1. Errors: those of every request. */
int gpubuf_unmap(gpubuf_mapping *mapping, struct gpubuf_error *err);

/* --- the other direction ------------------------------------------------------------------------------------------ */

/* Memory of this process as a buffer of the daemon's, without a copy: uploaded to, downloaded and copied like any
 * other. */
typedef struct gpubuf_adoption gpubuf_adoption;

struct gpubuf_adopt_params {
    enum gpubuf_way way; /* 0: memfd; or VMM, POOL, LEGACY */
    int fd; /* memfd: sealed with F_SEAL_SHRINK, open for writing; vmm: cuMemExportToShareableHandle's; pool:
                          * cudaMemPoolExportToShareableHandle's. It stays the
                          * caller's and is not needed any more afterwards */
    const void *handle; /* legacy: the 64 bytes of cudaIpcGetMemHandle; pool: those of cudaMemPoolExportPointer */
    uint64_t bytes;     /* of the buffer; 0: as dtype and shape say */
    const char *dtype;  /* NULL: uint8 */
    const char *shape;  /* "2,3"; NULL: one dimension */
    uint64_t offset;    /* where they begin, a multiple of 8 */
    uint64_t map_bytes; /* vmm: of the whole allocation; 0: as many as the bytes need */
    const char *device; /* of a device's memory: the daemon's index or UUID of it; NULL: the first */
    uint32_t wait_s;
    const char
        *side; /* "host" (memfd) or "device" (vmm, legacy): the memory is that side of a mirrored buffer, which may
                       * exist; NULL: the buffer is not mirrored */
    uint64_t room[7];
};

/* Makes memory of this process a buffer of the daemon, without a copy. params: the memory, which must live until
 * gpubuf_adoption_release(); all work on it must have ended. When the client's connection or this process ends, the
 * buffer is lost. ret_buffer may be NULL. The caller ends *ret with gpubuf_adoption_release(). Returns 0 or -1.
 * Errors: BUFFER_EXISTS, CANNOT_ADOPT, LOCAL_ONLY, UNSUPPORTED, LIMIT_REACHED. */
int gpubuf_adopt(gpubuf_client *client, const char *session, const char *buffer,
                 const struct gpubuf_adopt_params *params, gpubuf_adoption **ret, struct gpubuf_buffer *ret_buffer,
                 struct gpubuf_error *err);

/* Whether the daemon still holds the connection of the adoption. Any thread. Returns true or false. */
bool gpubuf_adoption_alive(const gpubuf_adoption *adoption);

/* Deletes the buffer if it still is this adoption, and frees the handle in every case. The buffer of a side stays:
 * bytes that this side alone has are copied to the other one first. Transfers that began earlier
 * use the memory until they end. adoption: NULL is permitted. Any thread. Returns 0, or -1 if the daemon did not
 * delete it. Errors: those of every request. */
int gpubuf_adoption_release(gpubuf_adoption *adoption, struct gpubuf_error *err);

#ifdef __cplusplus
}
#endif

#endif
