/* Two processes and one piece of memory: what the exporter asks and what the importer answers, over a socket of
 * packets. */
#ifndef GB_IMPORT_H
#define GB_IMPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "model/export.h"

#define IMPORT_PART_BYTES (4ull << 20)

/* Looked at are the first and the last bytes, at most IMPORT_PART_BYTES of each. */
struct import_parts {
    uint64_t first_bytes;
    uint64_t last_at;
    uint64_t last_bytes; /* may be none */
};

static inline struct import_parts import_parts_of(uint64_t bytes) {
    struct import_parts p = {.first_bytes = bytes < IMPORT_PART_BYTES ? bytes : IMPORT_PART_BYTES};

    p.last_at = bytes - p.first_bytes > IMPORT_PART_BYTES ? bytes - IMPORT_PART_BYTES : p.first_bytes;
    p.last_bytes = bytes - p.last_at;
    return p;
}

/* The byte that belongs at offset. */
static inline unsigned char import_byte(unsigned seed, uint64_t offset) {
    return (unsigned char)((offset * 2654435761u + seed * 40503u) >> 13);
}

/* With the packet comes the descriptor, where there is one. */
struct import_request {
    struct gb_export export; /* its fd: 0 when there is one, else -1 */
    bool writable;           /* the importer writes, too: seed + 1 */
    bool stay;               /* it answers once, then stays until it is killed */
    bool has_event;
    unsigned char event[GB_EXPORT_HANDLE_BYTES];
    uint64_t bytes;
    unsigned seed;
    char adopter[64]; /* the backend that is to adopt it, in place of all that; "": none. It writes */
};

/* The first answer comes when the memory is mapped and everything is queued that waits for the event, the second one at
 * the end. why is empty where all went well. */
struct import_answer {
    uint64_t map_ns;
    uint64_t wrong_bytes;
    char why[200];
};

/* The importer's view. at: the first byte, for the CPU or the device. */
struct import_view {
    unsigned char *at;
    void *base;
    void *native; /* import_cuda.c's */
};

/* Serves requests from the socket until it ends. Returns the exit status. */
int import_serve(int sock);

/* import_adopt.c: all of it; answer->why says what went wrong. */
void import_adopt(const struct import_request *request, int fd, struct import_answer *answer);

/* import_cuda.c: each -1 with the reason in why (200 bytes). */
int import_cuda_map(const struct import_request *request, int fd, struct import_view *view, char *why);
int import_cuda_event(const struct import_request *request, struct import_view *view, char *why);

/* Queues the reading of both parts, behind the event. */
int import_cuda_queue(const struct import_request *request, struct import_view *view, char *why);

/* Waits for that, or for the event alone where the memory is the host's, and gives the parts side by side. */
int import_cuda_wait(const struct import_request *request, struct import_view *view, unsigned char **ret, char *why);
int import_cuda_write(const struct import_request *request, struct import_view *view, const unsigned char *parts,
                      char *why);
void import_cuda_unmap(const struct import_request *request, struct import_view *view);

#endif
