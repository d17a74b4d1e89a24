/* import [--bytes SIZE] [BACKEND...]: exports every kind of memory, every way, to another process. The importer maps
 * the memory, waits for the event on the device, compares the bytes, writes its own, and is killed. The output has a
 * line for each, and a line with the counts.
 *
 * The importer is this program again, started by exec: it shares only a socket with the exporter. */
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/text.h"
#include "import.h"

#define SECONDS_MAX 300
#define IMPORTER_FD "3"

struct exporter {
    const char *spec;
    struct gb_backend *be;
    struct gb_stream *stream;
    struct gb_pool *pool; /* exportable, or the device's */
    unsigned char *pinned;
    uint64_t bytes;
    pid_t importer;
    int sock;
    unsigned passed;
    unsigned failed;
};

struct gate {
    sem_t entered;
    sem_t open;
};

/* --- the importer's process --------------------------------------------------------------------------------------- */

static int start_importer(struct exporter *x) {
    char *const argv[] = {"import", "--importer", NULL};
    posix_spawn_file_actions_t actions;
    extern char **environ;
    int pair[2];
    int r;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pair[1], atoi(IMPORTER_FD));
    r = posix_spawn(&x->importer, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(pair[1]);
    x->sock = pair[0];
    return r == 0 ? 0 : -1;
}

static void stop_importer(struct exporter *x, int signal) {
    close(x->sock);
    if (signal)
        kill(x->importer, signal);
    waitpid(x->importer, NULL, 0);
}

static bool ask(const struct exporter *x, struct import_request *request) {
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    int fd = request->export.fd;
    struct iovec iov = {.iov_base = request, .iov_len = sizeof(*request)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd >= 0) {
        msg.msg_control = control.space;
        msg.msg_controllen = sizeof(control.space);
        control.align =
            (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), &fd, sizeof(fd));
    }
    return sendmsg(x->sock, &msg, MSG_NOSIGNAL) == (ssize_t)sizeof(*request);
}

/* A dead importer sends no answer; that counts as one, too. */
static bool hear(const struct exporter *x, struct import_answer *answer) {
    if (recv(x->sock, answer, sizeof(*answer), 0) == (ssize_t)sizeof(*answer))
        return answer->why[0] == '\0';
    snprintf(answer->why, sizeof(answer->why), "the importer died");
    return false;
}

/* --- the exporter's memory ---------------------------------------------------------------------------------------- */

static int make(struct exporter *x, enum gb_kind kind, struct gb_location *ret, struct gb_error *err) {
    *ret = (struct gb_location){.kind = kind};
    return kind == GB_KIND_DEVICE ? gb_mem_alloc(x->be, x->pool, x->stream, x->bytes, &ret->ptr, err)
                                  : gb_mem_kind_alloc(x->be, 0, kind, x->bytes, &ret->ptr, err);
}

static int give_back(struct exporter *x, const struct gb_location *place, struct gb_error *err) {
    if (gb_stream_sync(x->be, x->stream, err) < 0)
        return -1;
    return place->kind == GB_KIND_DEVICE ? gb_mem_free(x->be, place->ptr, x->stream, err)
                                         : gb_mem_kind_free(x->be, place, x->bytes, err);
}

/* Queues the copy of both parts, from pinned memory or to it. */
static int move_parts(struct exporter *x, const struct gb_location *place, bool out, struct gb_error *err) {
    const struct import_parts p = import_parts_of(x->bytes);
    struct gb_location there = *place;
    struct gb_location here = {.kind = GB_KIND_PINNED, .ptr = x->pinned};
    enum gb_copy_way way;

    if (gb_mem_move(x->be, out ? &here : &there, out ? &there : &here, p.first_bytes, x->stream, &way, err) < 0)
        return -1;
    there.ptr = (char *)place->ptr + p.last_at;
    here.ptr = x->pinned + p.first_bytes;
    return gb_mem_move(x->be, out ? &here : &there, out ? &there : &here, p.last_bytes, x->stream, &way, err);
}

static void fill_pinned(struct exporter *x, unsigned seed) {
    const struct import_parts p = import_parts_of(x->bytes);
    uint64_t i;

    for (i = 0; i < p.first_bytes; i++)
        x->pinned[i] = import_byte(seed, i);
    for (i = 0; i < p.last_bytes; i++)
        x->pinned[p.first_bytes + i] = import_byte(seed, p.last_at + i);
}

static uint64_t count_wrong(struct exporter *x, unsigned seed) {
    const struct import_parts p = import_parts_of(x->bytes);
    uint64_t wrong = 0;
    uint64_t i;

    for (i = 0; i < p.first_bytes; i++)
        wrong += x->pinned[i] != import_byte(seed, i);
    for (i = 0; i < p.last_bytes; i++)
        wrong += x->pinned[p.first_bytes + i] != import_byte(seed, p.last_at + i);
    return wrong;
}

/* --- one export --------------------------------------------------------------------------------------------------- */

static void stand_at_gate(void *arg) {
    struct gate *gate = arg;

    sem_post(&gate->entered);
    while (sem_wait(&gate->open) != 0)
        continue;
}

/* If there is an event, the bytes are written behind a gate, so that an importer that does not wait reads other bytes.
 * Without an event the bytes are written first. */
static int write_behind(struct exporter *x, const struct gb_location *place, struct gate *gate, struct gb_event *event,
                        unsigned seed, struct gb_error *err) {
    if (gb_location_fill(x->be, place, 0, 1, x->bytes, x->stream, err) < 0)
        return -1;
    fill_pinned(x, seed);
    if (!event)
        return move_parts(x, place, false, err) < 0 ? -1 : gb_stream_sync(x->be, x->stream, err);
    if (gb_stream_call(x->be, x->stream, stand_at_gate, gate, err) < 0)
        return -1;
    while (sem_wait(&gate->entered) != 0)
        continue;
    if (move_parts(x, place, false, err) == 0 && gb_event_record(x->be, event, x->stream, err) == 0)
        return 0;
    sem_post(&gate->open);
    return -1;
}

/* Asks the importer, opens the gate and receives its answer; then checks the bytes that it wrote. */
static int converse(struct exporter *x, const struct gb_location *place, struct import_request *request,
                    struct gb_event *event, struct import_answer *answer, struct gb_error *err) {
    struct gate gate;
    bool well;

    sem_init(&gate.entered, 0, 0);
    sem_init(&gate.open, 0, 0);
    if (write_behind(x, place, &gate, event, request->seed, err) < 0)
        return -1;
    well = ask(x, request) && hear(x, answer);
    sem_post(&gate.open);
    if (gb_stream_sync(x->be, x->stream, err) < 0)
        return -1;
    if (request->stay)
        stop_importer(x, SIGKILL);
    else if (request->adopter[0] == '\0')
        well = well && hear(x, answer);
    if (!well)
        return gb_error_set(err, GB_ERR_INTERNAL, "%s", answer->why[0] != '\0' ? answer->why : "nothing was sent");
    if (answer->wrong_bytes > 0)
        return gb_error_set(err, GB_ERR_INTERNAL, "the importer saw %llu wrong bytes",
                            (unsigned long long)answer->wrong_bytes);
    if (!request->writable || request->stay)
        return 0;
    if (move_parts(x, place, true, err) < 0 || gb_stream_sync(x->be, x->stream, err) < 0)
        return -1;
    return count_wrong(x, request->seed + 1) == 0
               ? 0
               : gb_error_set(err, GB_ERR_INTERNAL, "what the importer wrote is not what is there");
}

static int share(struct exporter *x, const struct gb_location *place, struct import_request *request,
                 struct import_answer *answer, struct gb_error *err) {
    struct gb_error no_event = GB_ERROR_INIT;
    struct gb_event *event = NULL;
    int r = 0;

    if (gb_event_create_shared(x->be, 0, &event, &no_event) == 0) {
        request->has_event = true;
        r = gb_event_export(x->be, event, request->event, err);
    } else if (no_event.code != GB_ERR_UNSUPPORTED) {
        *err = no_event;
        return -1;
    }
    if (r == 0)
        r = converse(x, place, request, event, answer, err);
    gb_event_destroy(x->be, event);
    return r;
}

static void tell(struct exporter *x, const struct import_request *request, enum gb_kind kind,
                 const struct import_answer *answer, const struct gb_error *err) {
    printf("%s: %s by %s, %s%s: ", x->spec, gb_kind_name(kind), gb_export_way_name(request->export.way),
           request->writable ? "writing" : "reading", request->stay ? ", importer killed" : "");
    if (err->code != GB_OK)
        printf("FAILED: %s\n", err->detail);
    else
        printf("%llu bytes mapped in %.3f ms, %s: ok\n", (unsigned long long)x->bytes, (double)answer->map_ns / 1e6,
               request->has_event ? "waited for on the device" : "no event");
    if (err->code != GB_OK)
        x->failed++;
    else
        x->passed++;
}

/* Whether the memory can be exported that way. */
static bool try_way(struct exporter *x, const struct gb_location *place, enum gb_export_way way, bool writable,
                    bool stay) {
    struct import_request request = {.writable = writable, .stay = stay, .bytes = x->bytes, .seed = x->passed * 2 + 7};
    struct import_answer answer = {0};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_pool *pool = place->kind == GB_KIND_DEVICE ? x->pool : NULL;

    if (gb_mem_export(x->be, place, x->bytes, pool, way, writable, &request.export, &err) < 0) {
        if (err.code == GB_ERR_UNSUPPORTED) {
            printf("%s: %s by %s: passed over, %s\n", x->spec, gb_kind_name(place->kind), gb_export_way_name(way),
                   err.detail);
            return false;
        }
        request.export.way = way;
    } else {
        (void)share(x, place, &request, &answer, &err);
        gb_export_done(&request.export);
    }
    tell(x, &request, place->kind, &answer, &err);
    if (stay || strcmp(answer.why, "the importer died") == 0) {
        if (!stay)
            stop_importer(x, SIGKILL);
        if (start_importer(x) < 0)
            exit(EXIT_FAILURE);
    }
    return true;
}

/* The same, but the importer maps the memory with a backend of its own instead of direct driver calls. */
static void try_adopt(struct exporter *x, const struct gb_location *place, enum gb_export_way way) {
    struct import_request request = {.writable = true, .bytes = x->bytes, .seed = x->passed * 2 + 7};
    struct import_answer answer = {0};
    struct gb_error err = GB_ERROR_INIT;

    snprintf(request.adopter, sizeof(request.adopter), "%s", x->spec);
    if (gb_mem_export(x->be, place, x->bytes, place->kind == GB_KIND_DEVICE ? x->pool : NULL, way, true,
                      &request.export, &err) == 0)
        (void)converse(x, place, &request, NULL, &answer, &err);
    gb_export_done(&request.export);
    printf("%s: %s by %s, adopted: %s\n", x->spec, gb_kind_name(place->kind), gb_export_way_name(way),
           err.code == GB_OK ? "ok" : err.detail);
    x->passed += err.code == GB_OK;
    x->failed += err.code != GB_OK;
}

static void try_kind(struct exporter *x, enum gb_kind kind) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_location place;
    int way;

    for (way = 0; way < GB_EXPORT_WAYS; way++) {
        if (make(x, kind, &place, &err) < 0) {
            printf("%s: %s: %s, %s\n", x->spec, gb_kind_name(kind),
                   err.code == GB_ERR_UNSUPPORTED ? "passed over" : "FAILED", err.detail);
            x->failed += err.code != GB_ERR_UNSUPPORTED;
            return;
        }
        if (try_way(x, &place, (enum gb_export_way)way, false, false)) {
            try_way(x, &place, (enum gb_export_way)way, true, false);
            try_way(x, &place, (enum gb_export_way)way, true, true);
            try_adopt(x, &place, (enum gb_export_way)way);
        }
        if (give_back(x, &place, &err) < 0) {
            printf("%s: %s by %s: FAILED: giving it back: %s\n", x->spec, gb_kind_name(kind),
                   gb_export_way_name((enum gb_export_way)way), err.detail);
            x->failed++;
            return;
        }
    }
}

/* --- one backend -------------------------------------------------------------------------------------------------- */

static int open_exporter(struct exporter *x, struct gb_error *err) {
    const struct gb_pool_config config = {.release_threshold_bytes = GB_UNLIMITED, .exportable = true};

    if (gb_stream_create(x->be, 0, &x->stream, err) < 0 ||
        gb_pin_alloc(x->be, 2 * IMPORT_PART_BYTES, (void **)&x->pinned, err) < 0)
        return -1;
    if (gb_pool_create(x->be, 0, &config, &x->pool, err) == 0)
        return 0;
    if (err->code != GB_ERR_UNSUPPORTED)
        return -1;
    *err = GB_ERROR_INIT;
    return gb_pool_default(x->be, 0, &x->pool, err);
}

static void run(struct exporter *x) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_pool *usual = NULL;
    int kind;

    if (open_exporter(x, &err) == 0 && start_importer(x) == 0) {
        for (kind = 0; kind < GB_KIND_COUNT; kind++)
            try_kind(x, (enum gb_kind)kind);
        stop_importer(x, 0);
    } else {
        printf("%s: FAILED: %s\n", x->spec, err.detail);
        x->failed++;
    }
    if (gb_backend_dead(x->be, &err)) {
        printf("%s: FAILED: the device is dead: %s\n", x->spec, err.detail);
        x->failed++;
    }
    gb_pin_free(x->be, x->pinned);
    gb_stream_destroy(x->be, x->stream);
    if (gb_pool_default(x->be, 0, &usual, NULL) == 0 && x->pool != usual)
        gb_pool_destroy(x->be, x->pool);
}

/* optional: a missing backend is no failure. */
static void run_spec(const char *spec, uint64_t bytes, bool optional, unsigned *passed, unsigned *failed) {
    struct exporter x = {.spec = spec, .bytes = bytes};
    struct gb_error err = GB_ERROR_INIT;
    char note[GB_BACKEND_NOTE_SIZE];

    if (gb_backend_open(spec, &x.be, note, &err) == 0) {
        run(&x);
        gb_backend_close(x.be);
    } else {
        printf("%s: %s, %s\n", spec, optional ? "skipped" : "FAILED", err.detail);
        x.failed += !optional;
    }
    *passed += x.passed;
    *failed += x.failed;
}

int main(int argc, char **argv) {
    static const char *const usual[] = {"host", "host:discrete", "fault::host"};
    uint64_t bytes = (3ull << 20) + 5;
    unsigned passed = 0;
    unsigned failed = 0;
    size_t i;
    int at = gb_backend_probe(argc, argv);

    if (at >= 0)
        return at;
    at = 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    alarm(SECONDS_MAX);
    if (argc > 1 && strcmp(argv[1], "--importer") == 0)
        return import_serve(atoi(IMPORTER_FD));
    if (argc > 2 && strcmp(argv[1], "--bytes") == 0) {
        if (gb_parse_size(argv[2], strlen(argv[2]), &bytes) != GB_PARSE_OK || bytes == 0) {
            fprintf(stderr, "import: --bytes needs a size, such as 16G\n");
            return 64;
        }
        at = 3;
    }
    for (i = 0; at == argc && i < sizeof(usual) / sizeof(usual[0]); i++)
        run_spec(usual[i], bytes, false, &passed, &failed);
    if (at == argc)
        run_spec("cuda", bytes, true, &passed, &failed);
    for (; at < argc; at++)
        run_spec(argv[at], bytes, false, &passed, &failed);
    printf("%u passed, %u failed\n", passed, failed);
    return failed == 0 && passed > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
