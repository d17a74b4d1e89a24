/* Messages to a mailbox for descriptors. One descriptor in the first message is taken, and it is the one that was sent;
 * all else is refused with a reason. Nothing stays open. */
#include <dirent.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "fuzz.h"
#include "http/server/exchange.h"
#include "http/server/state.h"

#define FDS_MAX 253
#define ROOM 4096
#define LOOK_EVERY 512 /* inputs */

const unsigned gb_fuzz_mutants = 500;
const char *const gb_fuzz_seeds[] = {
    "\x01\x01x", "\x01\x02xy\x01\x01z", "\x02\x01x", "\x40\x00", "\x81\x05hello\x01\x01x", "\x01\x7f", NULL,
};

static struct gb_http_server server;
static struct gb_closer *closer;
static struct stat file_stat;
static int file;
static unsigned files;

/* Sockets and files in memory: the fuzzer has files of its own. */
static unsigned open_files(void) {
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    unsigned n = 0;

    FUZZ_ASSERT(dir);
    while ((entry = readdir(dir))) {
        char to[16] = "";

        if (readlinkat(dirfd(dir), entry->d_name, to, sizeof(to) - 1) > 0)
            n += strncmp(to, "socket:", 7) == 0 || strncmp(to, "/memfd:", 7) == 0;
    }
    closedir(dir);
    return n;
}

static void start(void) {
    server.config.connection_memory = 8192;
    FUZZ_ASSERT(gb_closer_new(ROOM, &closer, NULL) == 0);
    server.config.closer = closer;
    FUZZ_ASSERT(gb_fd_mailboxes_init(&server, NULL) == 0);
    file = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_ASSERT(file >= 0 && fstat(file, &file_stat) == 0);
    files = open_files();
}

/* The closer closes on its own thread. */
static void nothing_is_left_but(unsigned more) {
    uint64_t end = gb_clock_ns() + 20 * GB_NS_PER_S;
    struct timespec pause = {.tv_nsec = GB_NS_PER_MS};

    while (open_files() > files + more || !gb_closer_reserve(closer, ROOM)) {
        FUZZ_ASSERT(gb_clock_ns() < end);
        nanosleep(&pause, NULL);
    }
    gb_closer_give_back(closer, ROOM);
}

/* Takes the descriptor that comes with 103. */
static int take_box(int conn) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    char text[256];
    struct iovec part = {.iov_base = text, .iov_len = sizeof(text)};
    struct msghdr msg = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    int fd;

    FUZZ_ASSERT(recvmsg(conn, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) > 12 && memcmp(text, "HTTP/1.1 103", 12) == 0);
    FUZZ_ASSERT(CMSG_FIRSTHDR(&msg) && CMSG_FIRSTHDR(&msg)->cmsg_len == CMSG_LEN(sizeof(int)));
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
    return fd;
}

static void send_message(int box, unsigned count, const void *bytes, size_t n) {
    union {
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control = {.bytes = ""};
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = n};
    struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1};
    unsigned i;

    if (count > 0) {
        struct cmsghdr *c = &control.align;

        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
        *c = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(count * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        for (i = 0; i < count; i++)
            memcpy(CMSG_DATA(c) + i * sizeof(int), &file, sizeof(int));
    }
    sendmsg(box, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Each message: a byte for the number of descriptors (from 0x80 on, the socket is closed behind it), one for the length
 * of its text, and the text. *ret_count: the descriptors of the first message; -1: no message. */
static bool send_all(int box, struct gb_fuzz_in *in, int *ret_count) {
    *ret_count = -1;
    while (in->n > 0) {
        uint8_t what = gb_fuzz_byte(in);
        unsigned count = (what & 0x7f) < 0x7e ? (what & 0x7f) * 2u - (what & 1) : FDS_MAX;
        size_t n = gb_fuzz_byte(in);

        n = n < in->n ? n : in->n;
        send_message(box, count, in->at, n);
        *ret_count = *ret_count < 0 ? (int)count : *ret_count;
        in->at += n;
        in->n -= n;
        if (what >= 0x80)
            return true;
    }
    return false;
}

static void check(struct gb_http_fd_mailbox *mailbox, bool closed, int count) {
    struct gb_error err = GB_ERROR_INIT;
    struct stat found;
    int fd = -1;
    int r = gb_http_fd_mailbox_take(mailbox, &fd, &err);

    if (count == 1) {
        FUZZ_ASSERT(r == 1 && fstat(fd, &found) == 0 && found.st_ino == file_stat.st_ino);
        gb_closer_put(closer, fd);
    } else if (count < 0 && !closed) {
        FUZZ_ASSERT(r == 0);
    } else {
        FUZZ_ASSERT(r == -1 && err.code == GB_ERR_CANNOT_ADOPT);
        FUZZ_ASSERT_SAYS(err);
    }
    FUZZ_ASSERT(r == 0 || gb_http_fd_mailbox_take(mailbox, &fd, &err) == -1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct gb_http_peer peer;
    static unsigned inputs;
    struct gb_fuzz_in in = {data, size};
    struct gb_http_fd_mailbox *mailbox;
    struct gb_exchange *ex;
    bool closed;
    int pair[2];
    int count;
    int box;

    if (!closer)
        start();
    ex = gb_exchange_new(&server, "/");
    FUZZ_ASSERT(ex && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    ex->fd = pair[0];
    ex->req.peer = (struct gb_http_peer *)(uintptr_t)&peer;
    if (gb_http_fd_mailbox_open(&ex->req, &mailbox, NULL) < 0) {
        nothing_is_left_but(2); /* the closer had no room */
        FUZZ_ASSERT(gb_http_fd_mailbox_open(&ex->req, &mailbox, NULL) == 0);
    }
    box = take_box(pair[1]);
    closed = send_all(box, &in, &count);
    if (closed)
        close(box);
    gb_fd_mailboxes_event(&server);
    check(mailbox, closed, count);
    gb_http_fd_mailbox_free(mailbox);
    gb_exchange_unref(ex);
    if (!closed)
        close(box);
    close(pair[0]);
    close(pair[1]);
    if (++inputs % LOOK_EVERY == 0)
        nothing_is_left_but(0);
    return 0;
}

void gb_fuzz_end(void) {
    if (closer)
        nothing_is_left_but(0);
}
