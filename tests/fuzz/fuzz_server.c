/* A whole HTTP server and a client that sends arbitrary bytes over real sockets. After the client has disconnected, its
 * connection has ended, no descriptor is left, the loops sleep, and the next client is served.
 *
 * The first two bytes of an input choose how it is sent. In the rest, 0x01 and a following byte repeat the byte before
 * them up to 32768 times, and 0x02 is a NUL. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "fuzz.h"
#include "fuzz_client.h"
#include "http_fixture.h"

#define BATCH 1024 /* inputs between two checks in a replay: the server may see an end a second later */
#define THREADS_MAX 64
#define FILES_MAX 4096
#define WINDOW_NS (2 * GB_NS_PER_MS)
#define WINDOWS 5                   /* one after another */
#define QUIET_NS (GB_NS_PER_MS / 5) /* of CPU time, in a window */

#define H "Host: localhost\r\n"
#define CHUNKED(route) route " HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n"
#define NEXT "GET /canned HTTP/1.1\r\n" H "\r\n"

const unsigned gb_fuzz_mutants = 40;
const char *const gb_fuzz_seeds[] = {
    "aa" NEXT NEXT,
    "ba" CHUNKED("POST /json") "5\r\n{   }\r\n0\r\n\r\n" NEXT,
    "ca" CHUNKED("POST /json") "0\x01\x0f",
    "da" CHUNKED("PUT /drop") "5;a\x01\x0f",
    "ea" CHUNKED("PUT /drop") "5;a=b\r\nabcde\r\n0;c\r\nX: 1\r\nY: 2\r\n\r\n" NEXT,
    "fa" CHUNKED("PUT /drop?slow") "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n" NEXT,
    "ga" CHUNKED("POST /json") "0\r\nX: a\x01\x0f\r\n\r\n",
    "ha" CHUNKED("PUT /drop") "0\r\nX: 1\r\n\x01\x0f",
    "ia" CHUNKED("PUT /drop") "ffffffffffffffff\r\nabc",
    "ja" CHUNKED("POST /json") "5\nabcde\n0\n\n" NEXT,
    "ka" CHUNKED("PUT /refused") "5\r\nabcde\r\n0\r\n\r\n" NEXT,
    "la" CHUNKED("GET /canned") "5\r\nabcde\r\n0\r\n\r\n" NEXT,
    "ma" CHUNKED("PUT /nowhere") "5\r\nabcde\r\n0\r\n\r\n" NEXT,
    "na" CHUNKED("PUT /drop") "ffff\r\na\x01\x0f\r\n0\r\n\r\n",
    "oaPUT /drop HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nabcde" NEXT,
    "paPUT /drop?slow HTTP/1.1\r\n" H "Content-Length: 3000\r\n\r\na\x01\x0b" NEXT,
    "qaPUT /drop HTTP/1.1\r\n" H "Content-Length: 100000\r\n\r\na\x01\x0f",
    "raPUT /drop HTTP/1.1\r\n" H "Content-Length: 100000\r\nExpect: 100-continue\r\n\r\nabc",
    "saPOST /json HTTP/1.1\r\n" H "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" NEXT,
    "taPOST /json HTTP/1.1\r\n" H "Content-Length: 5\x02\x36\r\n\r\n{   }" NEXT,
    "uaPOST /json HTTP/1.1\r\n" H "Content-Length: 18446744073709551616\r\n\r\n{   }" NEXT,
    "vaPOST /json HTTP/1.1\r\n" H "Content-Length:\r\n 5\r\n\r\n{   }" NEXT,
    "waGET /canned HTTP/1.1\n" H "\n" NEXT,
    "xaGET /canned HTTP/1.1\r\n" H "X: a\x01\x0e\r\n\r\n",
    "yaGET /canned HTTP/1.1\r\n" H "X: 1\r\nX: 1\r\n: a\r\n\x02\r\n\r\n" NEXT,
    "zaGET /\x61\x01\x0f HTTP/1.1\r\n" H "\r\n",
    "AaGET /b/x HTTP/1.1\r\n" H "Range: bytes=0-9\r\n\r\n" NEXT,
    "BaGET /wait HTTP/1.1\r\n" H "\r\n" NEXT,
    "CaGET /wait?never=1 HTTP/1.1\r\n" H "\r\n" NEXT,
    "DaHEAD /b/x HTTP/1.0\r\n\r\nBREW / HTTP/2.0\r\n\r\n",
    NULL,
};

static struct gb_http_fixture f;
static int unix_fds[2]; /* the server's listening socket */
static struct sockaddr_un unix_address;

static struct {
    unsigned files;
    int thread[THREADS_MAX];
    unsigned threads;
} idle; /* of the server before the first client */

struct input {
    uint8_t *data;
    size_t size;
    int fd; /* of a client that has sent all and waits for the end; -1: closed */
};
static struct input batch[BATCH];
static unsigned batched;

/* The fixture's assertions; check's library can report them only within a suite. */
void _mark_point(const char *file, int line) {
    (void)file;
    (void)line;
}

void _ck_assert_failed(const char *file, int line, const char *expr, const char *msg, ...) {
    fprintf(stderr, "%s:%d: %s\n", file, line, expr ? expr : msg);
    abort();
}

/* --- the server's resources --------------------------------------------------------------------------------------- */

/* The numeric names in a folder of /proc. */
static unsigned numbers_in(const char *path, int *ret, unsigned max) {
    DIR *folder = opendir(path);
    unsigned n = 0;

    FUZZ_ASSERT(folder != NULL);
    for (struct dirent *e; (e = readdir(folder)) != NULL;) {
        FUZZ_ASSERT(n < max);
        if (e->d_name[0] != '.')
            ret[n++] = atoi(e->d_name);
    }
    closedir(folder);
    return n;
}

/* Files, pipes and terminals do not count: a fuzzer has its own. */
static unsigned open_files(void) {
    static int fd[FILES_MAX];
    unsigned n = numbers_in("/proc/self/fd", fd, FILES_MAX);
    struct stat stat;
    unsigned found = 0;

    while (n > 0) {
        if (fstat(fd[--n], &stat) == 0 && (S_ISSOCK(stat.st_mode) || (stat.st_mode & S_IFMT) == 0))
            found++;
    }
    return found;
}

/* CPU time of the server's threads, by the kernel's clock of each thread id. */
static uint64_t loops_ns(void) {
    struct timespec t;
    uint64_t sum = 0;
    unsigned i;

    for (i = 0; i < idle.threads; i++) {
        FUZZ_ASSERT(clock_gettime((clockid_t)(~(unsigned)idle.thread[i] << 3 | 6), &t) == 0);
        sum += (uint64_t)t.tv_sec * GB_NS_PER_S + (uint64_t)t.tv_nsec;
    }
    return sum;
}

static void nap(uint64_t ns) {
    struct timespec t = {.tv_nsec = (long)ns};

    nanosleep(&t, NULL);
}

static void add_unix(struct gb_http_server_config *config) {
    unix_address.sun_family = AF_UNIX;
    snprintf(unix_address.sun_path + 1, sizeof(unix_address.sun_path) - 1, "gb-fuzz-%d-%llu", (int)getpid(),
             (unsigned long long)gb_clock_ns());
    unix_fds[0] = config->listen_fds[0];
    unix_fds[1] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    FUZZ_ASSERT(bind(unix_fds[1], (struct sockaddr *)&unix_address, sizeof(unix_address)) == 0);
    FUZZ_ASSERT(listen(unix_fds[1], 4096) == 0);
    config->listen_fds = unix_fds;
    config->listen_fd_count = 2;
    config->loops = 1;
    config->bulk_loops = 1;
}

static int connected(bool local) {
    int fd;

    if (!local)
        return gb_client(&f);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FUZZ_ASSERT(connect(fd, (struct sockaddr *)&unix_address, sizeof(unix_address)) == 0);
    return fd;
}

static bool is_served(bool local) {
    struct timeval patience = {.tv_sec = GB_FUZZ_PATIENCE_NS / GB_NS_PER_S};
    char body[16] = "";
    int fd = connected(local);
    bool good;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    gb_client_text(fd, "GET /canned HTTP/1.1\r\n" H "Connection: close\r\n\r\n");
    good = gb_client_reply(fd, body, sizeof(body), NULL, NULL) == 200 && strcmp(body, "constant") == 0;
    close(fd);
    return good;
}

static uint64_t connections(void) {
    struct gb_http_server_stat stat;

    gb_http_server_stat(f.server, &stat);
    return stat.connections;
}

/* A server that was started before keeps running and no longer counts. */
static void start(void) {
    int before[THREADS_MAX];
    int now[THREADS_MAX];
    unsigned n = numbers_in("/proc/self/task", before, THREADS_MAX);
    unsigned m;
    unsigned i;
    unsigned k;

    gb_http_fixture_start(&f, add_unix);
    m = numbers_in("/proc/self/task", now, THREADS_MAX);
    idle.threads = 0;
    for (i = 0; i < m; i++) {
        for (k = 0; k < n && before[k] != now[i]; k++)
            ;
        if (k == n)
            idle.thread[idle.threads++] = now[i];
    }
    FUZZ_ASSERT(idle.threads >= 2 && is_served(false) && is_served(true));
    while (connections() > 0)
        nap(GB_NS_PER_MS / 10);
    idle.files = open_files();
}

static const char *left_now(void) {
    uint64_t used = loops_ns();

    nap(WINDOW_NS);
    used = loops_ns() - used;
    if (connections() > 0)
        return "a connection has not ended";
    if (open_files() > idle.files)
        return "a descriptor is still open";
    if (atomic_load(&f.sinks_open) > 0)
        return "a body's sink was not freed";
    if (atomic_load(&f.sources_open) > 0)
        return "an answer's source was not freed";
    return used > QUIET_NS ? "a loop uses CPU time without a client" : NULL;
}

/* Returns NULL, or a description of the resources that closed clients have left. A spinning loop may get no CPU time
 * for a while; a sleeping loop needs none, however loaded the machine is. */
static const char *left(void) {
    uint64_t end = gb_clock_ns() + GB_FUZZ_PATIENCE_NS;
    const char *what = NULL;
    unsigned quiet = 0;

    while (quiet < WINDOWS && gb_clock_ns() < end) {
        what = left_now();
        quiet = what ? 0 : quiet + 1;
    }
    if (quiet < WINDOWS)
        return what ? what : "a loop uses CPU time without a client";
    return is_served(false) && is_served(true) ? NULL : "the next client is not served";
}

/* --- a client ----------------------------------------------------------------------------------------------------- */

static void play(struct input *in) {
    static char bytes[GB_FUZZ_BYTES_MAX];
    struct linger hard = {.l_onoff = 1, .l_linger = 0};
    size_t n = gb_fuzz_expand(in->data, in->size, bytes);
    unsigned end = in->data[0] >> 3 & 3;
    int fd = connected(in->data[0] & 1);

    if (gb_fuzz_send(fd, bytes, n, in->data[0], in->data[1]) && (in->data[1] & 6))
        gb_fuzz_until_taken(fd);
    if (end == 0 || end == 1)
        shutdown(fd, SHUT_WR);
    if (end == 2)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    in->fd = end == 0 ? fd : -1;
    if (end != 0)
        close(fd);
}

/* --- inputs ------------------------------------------------------------------------------------------------------- */

static void give_up(const char *what, const struct input *in) {
    size_t i;

    fprintf(stderr, "%s behind this input:\n\"", what);
    for (i = 0; i < in->size; i++)
        fprintf(stderr, in->data[i] >= ' ' && in->data[i] < 0x7f ? "%c" : "\\x%02x", in->data[i]);
    fprintf(stderr, "\"\n");
    abort();
}

/* Returns NULL, or the failure after those inputs; *ret_input is the input that caused it, if known. */
static const char *wrong_behind(struct input *in, unsigned n, struct input **ret_input) {
    unsigned i;

    *ret_input = n == 1 ? in : NULL;
    for (i = 0; i < n; i++) {
        if (in[i].fd < 0)
            continue;
        *ret_input = &in[i];
        if (!gb_fuzz_ends(in[i].fd))
            return "the connection of a client that sends no more does not end";
        close(in[i].fd);
        in[i].fd = -1;
    }
    *ret_input = n == 1 ? in : NULL;
    return left();
}

static void look(void) {
    struct input *input;
    const char *wrong = wrong_behind(batch, batched, &input);
    unsigned i;

    if (wrong && !input) {
        fprintf(stderr, "%s behind %u inputs; each of them again, with a server of its own\n", wrong, batched);
        start();
        for (i = 0; i < batched; i++) {
            const char *alone;

            play(&batch[i]);
            alone = wrong_behind(&batch[i], 1, &input);
            if (alone)
                give_up(alone, input);
        }
    }
    if (wrong && input)
        give_up(wrong, input);
    FUZZ_ASSERT(!wrong); /* none of them causes it alone */
    while (batched > 0)
        free(batch[--batched].data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input *in = &batch[batched];

    if (size < 2)
        return 0;
    if (!f.server)
        start();
    in->data = malloc(size);
    in->size = size;
    FUZZ_ASSERT(in->data != NULL);
    memcpy(in->data, data, size);
    batched++;
    play(in);
    if (!&gb_fuzz_replays || batched == BATCH)
        look();
    return 0;
}

void gb_fuzz_end(void) {
    if (batched > 0)
        look();
    if (f.server)
        gb_http_fixture_stop(&f);
}
