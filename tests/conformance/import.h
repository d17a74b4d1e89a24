/* Two processes and one allocation: the exporter's requests and the importer's answers, over a packet socket. */
#ifndef GB_IMPORT_H
#define GB_IMPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "model/model.h"

#define IMPORT_PART_BYTES (4ull << 20)

/* The importer checks the first and the last bytes, at most IMPORT_PART_BYTES of each. */
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

/* The packet carries the descriptor, if there is one. */
struct import_request {
    struct gb_export export; /* its fd: 0 if there is one, else -1 */
    bool writable;           /* the importer writes, too: seed + 1 */
    bool stay;               /* it answers once, then sleeps until it is killed */
    bool has_event;
    unsigned char event[GB_EXPORT_HANDLE_BYTES];
    uint64_t bytes;
    unsigned seed;
    char adopter[64]; /* the backend that adopts and writes the memory, instead of the steps above; "": none */
};

/* The first answer comes when the memory is mapped and all work that waits for the event is queued. The second comes at
 * the end. why is empty on success. */
struct import_answer {
    uint64_t map_ns;
    uint64_t wrong_bytes;
    char why[200];
};

/* The importer's mapping. at: the first byte, for the CPU or the device. */
struct import_view {
    unsigned char *at;
    void *base;
    void *native; /* of import_cuda.c */
};

/* Serves requests from the socket until it ends. Returns the exit status. */
int import_serve(int sock);

/* import_adopt.c: the whole import; answer->why has the failure. */
void import_adopt(const struct import_request *request, int fd, struct import_answer *answer);

/* import_cuda.c: each returns -1 with the reason in why (200 bytes) on failure. */
int import_cuda_map(const struct import_request *request, int fd, struct import_view *view, char *why);
int import_cuda_event(const struct import_request *request, struct import_view *view, char *why);

/* Queues the copies of both parts, behind the event. */
int import_cuda_queue(const struct import_request *request, struct import_view *view, char *why);

/* Waits for those copies, or for the event alone if the memory is on the host. Returns the parts side by side. */
int import_cuda_wait(const struct import_request *request, struct import_view *view, unsigned char **ret, char *why);
int import_cuda_write(const struct import_request *request, struct import_view *view, const unsigned char *parts,
                      char *why);
void import_cuda_unmap(const struct import_request *request, struct import_view *view);

#endif
