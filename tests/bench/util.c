#include "util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

void bench_die(const char *format, ...) {
    va_list ap;

    fprintf(stderr, "gb-bench: ");
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(1);
}

uint64_t bench_now_ns(void) {
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t bench_parse_size(const char *text, const char *option) {
    char *end;
    unsigned long long value = strtoull(text, &end, 10);

    if (end == text || *text == '-')
        bench_die("--%s: '%s' is no number", option, text);
    switch (*end) {
    case 'G':
        value <<= 10; /* fall through */
    case 'M':
        value <<= 10; /* fall through */
    case 'K':
        value <<= 10;
        end++;
        break;
    default:
        break;
    }
    if (*end)
        bench_die("--%s: '%s' is no number", option, text);
    return value;
}

void bench_raise_nofile(void) {
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in addr;

    memset(&addr, 0, sizeof addr);
    addr.sin_family = AF_INET;
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    addr.sin_port = htons((uint16_t)port);
    return addr;
}

void bench_nodelay(int fd) {
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

void bench_nonblocking(int fd) {
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void bench_give_up_after(int fd, int seconds) {
    struct timeval limit = {.tv_sec = seconds};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

int bench_connect(int port) {
    struct sockaddr_in addr = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        bench_die("socket: %s", strerror(errno));
    if (connect(fd, (struct sockaddr *)&addr, sizeof addr)) {
        close(fd);
        return -1;
    }
    bench_nodelay(fd);
    return fd;
}

int bench_listen(int port, int *ret_port) {
    struct sockaddr_in addr = loopback(port);
    socklen_t len = sizeof addr;
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        bench_die("socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&addr, sizeof addr) || listen(fd, 4096) ||
        getsockname(fd, (struct sockaddr *)&addr, &len))
        bench_die("listen on port %d: %s", port, strerror(errno));
    *ret_port = ntohs(addr.sin_port);
    return fd;
}

static struct sockaddr_un local(const char *path) {
    struct sockaddr_un addr;

    memset(&addr, 0, sizeof addr);
    addr.sun_family = AF_UNIX;
    if (strlen(path) >= sizeof addr.sun_path)
        bench_die("%s is too long for a socket", path);
    strcpy(addr.sun_path, path);
    return addr;
}

static int local_socket(void) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        bench_die("socket: %s", strerror(errno));
    return fd;
}

int bench_connect_unix(const char *path) {
    struct sockaddr_un addr = local(path);
    int fd = local_socket();

    if (connect(fd, (struct sockaddr *)&addr, sizeof addr) == 0)
        return fd;
    close(fd);
    return -1;
}

int bench_listen_unix(const char *path) {
    struct sockaddr_un addr = local(path);
    int fd = local_socket();

    if (bind(fd, (struct sockaddr *)&addr, sizeof addr) || listen(fd, 4096))
        bench_die("listen on %s: %s", path, strerror(errno));
    return fd;
}

bool bench_sendv_all(int fd, struct iovec *vec, int count) {
    struct msghdr msg;

    memset(&msg, 0, sizeof msg);
    while (count > 0) {
        ssize_t n;

        msg.msg_iov = vec;
        msg.msg_iovlen = (size_t)count;
        n = sendmsg(fd, &msg, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        while (count > 0 && (size_t)n >= vec->iov_len) {
            n -= (ssize_t)vec->iov_len;
            vec++;
            count--;
        }
        if (count > 0) {
            vec->iov_base = (char *)vec->iov_base + n;
            vec->iov_len -= (size_t)n;
        }
    }
    return true;
}

bool bench_send_all(int fd, const void *data, size_t bytes) {
    struct iovec vec = {(void *)(uintptr_t)data, bytes};

    return bench_sendv_all(fd, &vec, 1);
}

void *bench_resident(size_t bytes) {
    size_t whole = (bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    char *map;
    char *memory;

    if (!whole)
        whole = HUGE_PAGE_BYTES;
    map = mmap(NULL, whole + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        bench_die("no memory for %zu bytes", bytes);
    memory = (char *)(((uintptr_t)map + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES);
    madvise(memory, whole, MADV_HUGEPAGE);
    memset(memory, 0x5a, whole);
    return memory;
}

void *bench_file(const char *path, uint64_t *ret_bytes) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    void *bytes;

    if (size <= 0)
        bench_die("cannot read %s", path);
    bytes = bench_resident((size_t)size);
    if (pread(fd, bytes, (size_t)size, 0) != (ssize_t)size)
        bench_die("cannot read %s", path);
    close(fd);
    *ret_bytes = (uint64_t)size;
    return bytes;
}
