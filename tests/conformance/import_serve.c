/* The importer: a process that has only the data that comes over the socket. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "import.h"

/* Without CUDA no exporter sends such a request. */
#ifndef HAVE_CUDA
static int no_cuda(char *why) {
    snprintf(why, 200, "this importer was built without CUDA");
    return -1;
}
#define import_cuda_map(request, fd, view, why) no_cuda(why)
#define import_cuda_event(request, view, why) no_cuda(why)
#define import_cuda_queue(request, view, why) no_cuda(why)
#define import_cuda_wait(request, view, ret, why) no_cuda(why)
#define import_cuda_write(request, view, parts, why) no_cuda(why)
#define import_cuda_unmap(request, view) ((void)0)
#endif

static uint64_t now_ns(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool on_host(const struct import_request *request) {
    return request->export.way == GB_EXPORT_MEMFD;
}

static int map_file(const struct import_request *request, int fd, struct import_view *view, char *why) {
    int protection = request->writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void *at;

    if (!request->writable) {
        at = mmap(NULL, request->export.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at != MAP_FAILED) {
            snprintf(why, 200, "what is for reading was mapped for writing");
            munmap(at, request->export.map_bytes);
            return -1;
        }
    }
    at = mmap(NULL, request->export.map_bytes, protection, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        snprintf(why, 200, "mmap: %s", strerror(errno));
        return -1;
    }
    view->base = at;
    view->at = (unsigned char *)at + request->export.offset;
    return 0;
}

static uint64_t count_wrong(const unsigned char *bytes, uint64_t n, uint64_t at, unsigned seed) {
    uint64_t wrong = 0;
    uint64_t i;

    for (i = 0; i < n; i++)
        wrong += bytes[i] != import_byte(seed, at + i);
    return wrong;
}

static void fill_part(unsigned char *bytes, uint64_t n, uint64_t at, unsigned seed) {
    uint64_t i;

    for (i = 0; i < n; i++)
        bytes[i] = import_byte(seed, at + i);
}

/* Returns when all work is queued. */
static int begin(const struct import_request *request, int fd, struct import_view *view, struct import_answer *answer) {
    uint64_t since = now_ns();
    int r =
        on_host(request) ? map_file(request, fd, view, answer->why) : import_cuda_map(request, fd, view, answer->why);

    answer->map_ns = now_ns() - since;
    if (r == 0 && request->has_event)
        r = import_cuda_event(request, view, answer->why);
    if (r == 0 && !on_host(request))
        r = import_cuda_queue(request, view, answer->why);
    return r;
}

static void look_and_write(const struct import_request *request, struct import_view *view,
                           struct import_answer *answer) {
    const struct import_parts p = import_parts_of(request->bytes);
    unsigned char *parts = NULL;
    unsigned char *last;

    if ((request->has_event || !on_host(request)) && import_cuda_wait(request, view, &parts, answer->why) < 0)
        return;
    parts = on_host(request) ? view->at : parts;
    last = on_host(request) ? view->at + p.last_at : parts + p.first_bytes;
    answer->wrong_bytes =
        count_wrong(parts, p.first_bytes, 0, request->seed) + count_wrong(last, p.last_bytes, p.last_at, request->seed);
    if (!request->writable)
        return;
    fill_part(parts, p.first_bytes, 0, request->seed + 1);
    fill_part(last, p.last_bytes, p.last_at, request->seed + 1);
    if (!on_host(request))
        (void)import_cuda_write(request, view, parts, answer->why);
}

static void end(const struct import_request *request, struct import_view *view) {
    if (on_host(request) && view->base)
        munmap(view->base, request->export.map_bytes);
    import_cuda_unmap(request, view);
}

static bool receive(int sock, struct import_request *request, int *ret_fd) {
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = request, .iov_len = sizeof(*request)};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof(control.space)};
    const struct cmsghdr *c;

    *ret_fd = -1;
    if (recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*request))
        return false;
    c = CMSG_FIRSTHDR(&msg);
    if (c && c->cmsg_type == SCM_RIGHTS)
        memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
    return true;
}

int import_serve(int sock) {
    struct import_request request;
    int fd;

    while (receive(sock, &request, &fd)) {
        struct import_answer answer = {0};
        struct import_view view = {0};
        int r = 0;

        if (request.adopter[0] != '\0')
            import_adopt(&request, fd, &answer);
        else
            r = begin(&request, fd, &view, &answer);
        if (fd >= 0)
            close(fd); /* the mapping needs it no longer */
        if (send(sock, &answer, sizeof(answer), MSG_NOSIGNAL) < 0)
            return 1;
        while (r == 0 && request.stay)
            pause();
        if (request.adopter[0] != '\0')
            continue;
        if (r == 0) {
            look_and_write(&request, &view, &answer);
            end(&request, &view);
            if (send(sock, &answer, sizeof(answer), MSG_NOSIGNAL) < 0)
                return 1;
        } else {
            end(&request, &view);
        }
    }
    return 0;
}
