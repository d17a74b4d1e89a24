/* Helpers of the benchmark's programs: time, sockets, resident memory, options. On an error of the system they end the
 * program with a sentence on stderr. */
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

/* Raises the limit of descriptors to the hard limit. */
void bench_raise_nofile(void);

/* Loopback TCP with TCP_NODELAY. bench_connect returns -1 if no server listens. */
int bench_connect(int port);
int bench_listen(int port, int *ret_port);
int bench_connect_unix(const char *path);
int bench_listen_unix(const char *path);
void bench_nodelay(int fd);
void bench_nonblocking(int fd);
/* Sets a timeout: a blocking send or recv without progress for this time fails with EAGAIN. */
void bench_give_up_after(int fd, int seconds);

/* Transfer all bytes; return false if the peer closed. bench_sendv_all changes the vector. */
bool bench_send_all(int fd, const void *data, size_t bytes);
bool bench_sendv_all(int fd, struct iovec *vec, int count);

/* Allocates resident memory: 2 MiB aligned, with huge pages requested and every page touched. Never freed. */
void *bench_resident(size_t bytes);
/* The same, filled with the bytes of a file. */
void *bench_file(const char *path, uint64_t *ret_bytes);

#endif
