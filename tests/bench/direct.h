/* Transfers past the kernel's cache, DIRECT_DEPTH of them at a time, by as many threads of the process. Any failure
 * ends the process: a measurement on a disk that fails is none. */
#ifndef GB_BENCH_DIRECT_H
#define GB_BENCH_DIRECT_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define DIRECT_DEPTH 8
#define DIRECT_PIECE_BYTES ((size_t)1 << 20)
#define DIRECT_ALIGN 4096u

struct direct_file {
    int fd;
    pthread_mutex_t lock;
    pthread_cond_t none;
    unsigned pending; /* transfers that were begun and have not ended */
};

/* Makes the threads. */
void direct_start(void);

/* A new file with room for that many bytes, which must not exist. */
void direct_create(struct direct_file *file, int folder, const char *name, uint64_t bytes);
void direct_open(struct direct_file *file, const char *path, uint64_t *ret_bytes);
/* Memory, length and place are aligned. The memory stays until direct_wait. */
void direct_write(struct direct_file *file, const void *memory, size_t n, uint64_t at);
void direct_read(struct direct_file *file, void *memory, size_t n, uint64_t at);
void direct_wait(struct direct_file *file);
/* After direct_wait: cuts the file to its length and syncs it. */
void direct_sync(struct direct_file *file, uint64_t bytes);
void direct_close(struct direct_file *file);

/* Removes the file on one of the threads. */
void direct_remove(int folder, const char *name);

int direct_folder(const char *path);

#endif
