/* kill -9 at many moments: every acknowledged change is in the database afterwards, and the database is intact.
 *
 * Each round forks a writer that reports every acknowledged change through a pipe, and kills it after the n-th report.
 * Reports that are still in the pipe by then count as acknowledged. The rounds share one database, so that each round
 * starts from the result of the last. */
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gb_test.h"
#include "store_fixture.h"

#define ROUNDS 40
#define LONG_ROUNDS 3     /* long enough for checkpoints to fall into them */
#define IDS_MAX (1 << 20) /* more than any run reaches */

enum ack_kind { ACK_SESSION, ACK_BUFFER, ACK_DELETED };

struct ack {
    enum ack_kind kind;
    int id;
};

/* Written when the child starts a change, read when it is acknowledged. */
struct pending {
    struct ack ack;
    int fd;
    sem_t *window;
};

struct round {
    int number;
    int kill_after;
    int window; /* changes on the way at once */
    bool sync_full;
    bool large;
};

/* The expected state by id: 1 present, 0 unknown, -1 absent. */
static signed char sessions[IDS_MAX];
static signed char buffers[IDS_MAX];
static unsigned char found[IDS_MAX];

static void acknowledged(void *arg, const struct gb_error *error) {
    struct pending *p = arg;

    if (error || write(p->fd, &p->ack, sizeof(p->ack)) != sizeof(p->ack))
        _exit(3);
    sem_post(p->window);
    free(p);
}

static struct pending *start(int fd, sem_t *window, enum ack_kind kind, int id) {
    struct pending *p = malloc(sizeof(*p));

    if (!p)
        _exit(4);
    *p = (struct pending){.ack = {kind, id}, .fd = fd, .window = window};
    while (sem_wait(window) < 0)
        ;
    return p;
}

/* Never returns: writes until it is killed. Every seventh buffer is deleted again. */
static void child(struct store_fixture *f, const struct round *round, int fd) {
    struct gb_session_rec session;
    struct gb_buffer_rec buffer;
    struct gb_store_ids last;
    char large[GB_LABELS_MAX] = "";
    int64_t session_id;
    int64_t id;
    char name[32];
    sem_t window;

    memset(large, 'x', sizeof(large) - 1);
    f->config.sync_full = round->sync_full;
    sem_init(&window, 0, (unsigned)round->window);
    if (gb_store_open(&f->config, &f->store, NULL) < 0 || gb_store_last_ids(f->store, &last, NULL) < 0)
        _exit(5);
    session_id = last.session;
    for (id = last.buffer + 1;; id++) {
        if (id % 50 == 1 || session_id == 0) {
            snprintf(name, sizeof(name), "s%lld", (long long)++session_id);
            session = store_session(session_id, name);
            gb_store_put_session(f->store, &session, NULL, acknowledged,
                                 start(fd, &window, ACK_SESSION, (int)session_id));
        }
        snprintf(name, sizeof(name), "b%lld", (long long)id);
        buffer = store_buffer(id, session_id, name);
        if (round->large)
            buffer.labels = store_labels(large);
        gb_store_put_buffer(f->store, &buffer, NULL, acknowledged, start(fd, &window, ACK_BUFFER, (int)id));
        if (id % 7 == 0)
            gb_store_delete_buffer(f->store, id, NULL, acknowledged, start(fd, &window, ACK_DELETED, (int)id));
    }
}

static void note(const struct ack *ack) {
    signed char *at = ack->kind == ACK_SESSION ? &sessions[ack->id] : &buffers[ack->id];

    /* No id is used twice. */
    if (ack->id <= 0 || ack->id >= IDS_MAX || (ack->kind != ACK_DELETED && *at != 0))
        ck_abort_msg("the id %d was acknowledged again, or is none", ack->id);
    if (ack->kind == ACK_DELETED)
        *at = -1;
    else if (ack->kind == ACK_SESSION || ack->id % 7 != 0)
        *at = 1; /* for the others a delete may be committed but not yet reported */
}

/* Returns the number of acknowledgements. */
static int run_and_kill(struct store_fixture *f, const struct round *round) {
    struct ack ack;
    int ends[2];
    int count = 0;
    int status = 0;
    pid_t pid;

    ck_assert_int_eq(pipe(ends), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        close(ends[0]);
        child(f, round, ends[1]);
    }
    close(ends[1]);
    while (read(ends[0], &ack, sizeof(ack)) == sizeof(ack)) {
        note(&ack);
        if (++count == round->kill_after)
            kill(pid, SIGKILL);
    }
    close(ends[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "round %d: the child ended by itself, status %x",
                  round->number, (unsigned)status);
    return count;
}

static int see_session(void *arg, const void *row, struct gb_error *err) {
    const struct gb_session_rec *rec = row;
    char name[32];

    (void)arg;
    snprintf(name, sizeof(name), "s%lld", (long long)rec->id);
    if (rec->id >= IDS_MAX || strcmp(rec->name.s, name) != 0)
        return gb_error_set(err, GB_ERR_INTERNAL, "session %lld is called %s", (long long)rec->id, rec->name.s);
    found[rec->id] |= 1;
    return 0;
}

static int see_buffer(void *arg, const void *row, struct gb_error *err) {
    const struct gb_buffer_rec *rec = row;
    char name[32];

    (void)arg;
    snprintf(name, sizeof(name), "b%lld", (long long)rec->id);
    if (rec->id >= IDS_MAX || strcmp(rec->name.s, name) != 0 || rec->generation != 5)
        return gb_error_set(err, GB_ERR_INTERNAL, "buffer %lld is called %s", (long long)rec->id, rec->name.s);
    found[rec->id] |= 2;
    return 0;
}

static void assert_all_there(struct store_fixture *f, const struct round *round) {
    struct gb_error err = GB_ERROR_INIT;
    char verdict[64];
    struct gb_store_ids last;
    int i;

    memset(found, 0, sizeof(found));
    store_fixture_open(f);
    gb_assert_ok(gb_store_load(f->store, GB_STORE_SESSIONS, see_session, NULL, &err), err);
    gb_assert_ok(gb_store_load(f->store, GB_STORE_BUFFERS, see_buffer, NULL, &err), err);
    gb_assert_ok(gb_store_last_ids(f->store, &last, &err), err);
    store_sql_text(f->path, "PRAGMA integrity_check", verdict);
    ck_assert_str_eq(verdict, "ok");
    ck_assert_int_eq(store_sql_int(f->path, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    /* One assertion for all: check keeps a record of every assertion that passes. */
    for (i = 1; i < IDS_MAX; i++) {
        if ((sessions[i] == 1 && (!(found[i] & 1) || i > last.session)) || (buffers[i] != 0 && i > last.buffer) ||
            (buffers[i] == 1 && !(found[i] & 2)) || (buffers[i] == -1 && (found[i] & 2)))
            ck_abort_msg("round %d, id %d: session %d and buffer %d of this id were acknowledged (1 put, -1 deleted), "
                         "found is %d (1 session, 2 buffer), last ids %lld and %lld",
                         round->number, i, sessions[i], buffers[i], found[i], (long long)last.session,
                         (long long)last.buffer);
    }
    store_fixture_close(f);
}

START_TEST(what_was_acknowledged_survives_kill) {
    struct store_fixture f;
    int i;

    store_fixture_dir(&f);
    for (i = 0; i < ROUNDS; i++) {
        bool is_long = i >= ROUNDS - LONG_ROUNDS;
        struct round round = {.number = i,
                              .kill_after = is_long ? 4000 + 700 * i % 1000 : 1 + i * 37 % 400,
                              .window = 1 + i * 5 % 48,
                              .sync_full = i % 2 == 0,
                              .large = is_long || i % 3 == 0};

        ck_assert_int_ge(run_and_kill(&f, &round), round.kill_after);
        assert_all_there(&f, &round);
    }
    store_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("crash_store");

    gb_test_add(suite, "kill", what_was_acknowledged_survives_kill, 300);
    return gb_test_run(suite);
}
