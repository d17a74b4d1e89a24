/* A buffer's memory in this process, without a copy. Part of <gpubuf/gpubuf.h>.
 *
 * Over the daemon's UNIX socket. The connection is the lease: when this process ends, however, so do its mappings, and
 * as long as one lives the daemon neither frees nor overwrites the bytes. All mappings of a client share one connection.
 *
 * Nothing here needs CUDA at link time. For ways other than memfd libcuda.so.1 is opened when the first such buffer is
 * mapped, and the device's primary context is used, as the CUDA runtime and all that is built on it do; from the first
 * mapping on it is held until the client and its mappings are gone. */
#ifndef GPUBUF_MAP_H
#define GPUBUF_MAP_H

#include <gpubuf/client.h>
#include <gpubuf/records.h>

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
    unsigned ways; /* the only ones to be tried; 0: all. Where no libcuda is found, 0 means memfd alone */
    uint32_t wait_s;
    /* CUDA's number of the device in this process, where it is not found by the UUID; -1 and 0: by the UUID. N + 1. */
    int cuda_device;
    uint64_t room[8];
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

/* Maps the buffer as it is now. params may be NULL: for reading, any way. Where the buffer's last writes still run on the
 * daemon's device, device memory is handed out with an event: see gpubuf_mapping_wait(). Of a device's memory for reading
 * the driver enforces that only where it can; treat it so. */
int gpubuf_map(gpubuf_client *client, const char *session, const char *buffer, const struct gpubuf_map_params *params,
               gpubuf_mapping **ret, struct gpubuf_error *err);

const struct gpubuf_mapping_info *gpubuf_mapping_info_of(const gpubuf_mapping *mapping);

/* Makes work that is queued later on the stream (a CUstream, as cudaStream_t is; NULL: the default stream) wait for the
 * buffer's earlier writes, on the device. Nothing to do, and 0, where they had ended. */
int gpubuf_mapping_wait(gpubuf_mapping *mapping, void *stream, struct gpubuf_error *err);

/* Has the daemon copy bytes of a buffer ("session/buffer", or "buffer" of the same session) from from_offset into the mapped
 * memory at offset; bytes 0: as many as there are. They are there when it returns. With gpubuf_buffer_copy() for the other
 * direction a pinned buffer is a slab through which bytes go without a socket between. Every mapping of the buffer
 * must be this client's; else mapped. Any thread. */
int gpubuf_mapping_load(gpubuf_mapping *mapping, const char *from, uint64_t from_offset, uint64_t offset,
                        uint64_t bytes, struct gpubuf_error *err);

/* Whether the daemon still is there and holds the connection. The memory stays readable when it is not: nobody else writes it
 * then, and what is written is lost. A lease that an administrator ended is not seen here, but by gpubuf_mapping_current(). Any
 * thread. */
bool gpubuf_mapping_alive(const gpubuf_mapping *mapping);

/* Asks the daemon whether the mapped memory still is the buffer's content: *ret is false once that was replaced, deleted or
 * lost, once an administrator has ended the lease, and where the daemon is gone. Any thread. */
int gpubuf_mapping_current(gpubuf_mapping *mapping, bool *ret, struct gpubuf_error *err);

/* A descriptor that polls readable when the daemon goes (and at other times: ask gpubuf_mapping_alive()); do not read. */
int gpubuf_mapping_poll_fd(const gpubuf_mapping *mapping);

/* Ends it in this process and tells the daemon, whose answer can fail; the mapping is gone in every case. All work on
 * the memory must have ended. NULL is permitted. Any thread. */
int gpubuf_unmap(gpubuf_mapping *mapping, struct gpubuf_error *err);

/* --- the other direction ------------------------------------------------------------------------------------------- */

/* Memory of this process as a buffer of the daemon's, without a copy: uploaded to, downloaded and copied like any other. */
typedef struct gpubuf_adoption gpubuf_adoption;

struct gpubuf_adopt_params {
    enum gpubuf_way way; /* 0: memfd; or VMM, LEGACY */
    int fd; /* memfd: sealed with F_SEAL_SHRINK, open for writing; vmm: cuMemExportToShareableHandle's. It stays the
                          * caller's and is not needed any more afterwards */
    const void *handle; /* legacy: the 64 bytes of cudaIpcGetMemHandle */
    uint64_t bytes;     /* of the buffer; 0: as dtype and shape say */
    const char *dtype;  /* NULL: uint8 */
    const char *shape;  /* "2,3"; NULL: one dimension */
    uint64_t offset;    /* where they begin, a multiple of 8 */
    uint64_t map_bytes; /* vmm: of the whole allocation; 0: as many as the bytes need */
    const char *device; /* of a device's memory: the daemon's index or UUID of it; NULL: the first */
    uint32_t wait_s;
    uint64_t room[8];
};

/* Has the daemon adopt it, over the client's one connection: while that lives the buffer is this process's memory, and when it
 * ends, as with this process, the buffer is lost. All work on the memory must have ended; what the daemon writes is there when
 * its answer is. The memory must live until gpubuf_adoption_release(). ret_buffer may be NULL. */
int gpubuf_adopt(gpubuf_client *client, const char *session, const char *buffer,
                 const struct gpubuf_adopt_params *params, gpubuf_adoption **ret, struct gpubuf_buffer *ret_buffer,
                 struct gpubuf_error *err);

/* Whether the daemon still is there and holds the connection. Any thread. */
bool gpubuf_adoption_alive(const gpubuf_adoption *adoption);

/* Deletes the buffer, where it still is this one, and tells whether the daemon did; the handle is gone in every case. Transfers
 * that had begun before still use the memory until they end; the memory itself is left as it is. NULL is permitted. Any
 * thread. */
int gpubuf_adoption_release(gpubuf_adoption *adoption, struct gpubuf_error *err);

#ifdef __cplusplus
}
#endif

#endif
