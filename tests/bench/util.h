/* What the benchmark's programs share: time, sockets, resident memory, options. A benchmark has nobody to report an
 * error to, so these end the program with a sentence on stderr when the machine refuses something. */
#ifndef GB_BENCH_UTIL_H
#define GB_BENCH_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

void bench_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

uint64_t bench_now_ns(void);

/* Decimal with an optional K, M or G (1024-based). */
uint64_t bench_parse_size(const char *text, const char *option);

/* As many descriptors as the hard limit permits. */
void bench_raise_nofile(void);

/* Loopback TCP with TCP_NODELAY. bench_connect gives -1 when nobody listens. */
int bench_connect(int port);
int bench_listen(int port, int *ret_port);
int bench_connect_unix(const char *path);
int bench_listen_unix(const char *path);
void bench_nodelay(int fd);
void bench_nonblocking(int fd);
/* A blocking send or recv that makes no progress for so long fails with EAGAIN. */
void bench_give_up_after(int fd, int seconds);

/* The whole of it, or false when the other side is gone. bench_sendv_all changes the vector. */
bool bench_send_all(int fd, const void *data, size_t bytes);
bool bench_sendv_all(int fd, struct iovec *vec, int count);

/* Memory that is there: 2 MiB aligned, huge pages asked for, every page touched. Never freed. */
void *bench_resident(size_t bytes);
/* The same with the bytes of a file in it. */
void *bench_file(const char *path, uint64_t *ret_bytes);

#endif
