/* The fixture of the store's tests: a database in a temporary folder, records, and blocking helpers for changes. */
#ifndef STORE_FIXTURE_H
#define STORE_FIXTURE_H

#include <pthread.h>
#include <semaphore.h>

#include "store/store.h"

struct store_fixture {
    char dir[64];
    char path[96]; /* of the database in dir */
    struct gb_store_config config;
    struct gb_store *store;
};

/* Makes the folder and opens the store. _close followed by _open shows which records survive. A failure ends the
 * test. */
void store_fixture_init(struct store_fixture *f);
void store_fixture_done(struct store_fixture *f);
void store_fixture_open(struct store_fixture *f);
void store_fixture_close(struct store_fixture *f);

/* Makes only the folder. */
void store_fixture_dir(struct store_fixture *f);

/* Distinct values in every field, made from id. */
/* Labels of that text (not "{}"), a few different ones at most, which live as long as the program. One thread. */
struct gb_text *store_labels(const char *text);

/* The labels are borrowed from store_labels. */
struct gb_session_rec store_session(int64_t id, const char *name);
struct gb_buffer_rec store_buffer(int64_t id, int64_t session_id, const char *name);

/* Counts the results that done callbacks report. */
struct store_wait {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    unsigned reported;
    unsigned failed;
    struct gb_error last; /* of the last failure */
};

void store_wait_init(struct store_wait *w);
void store_wait_done(struct store_wait *w);
void store_wait_report(void *wait, const struct gb_error *error); /* a gb_store_done_fn */
void store_wait_until(struct store_wait *w, unsigned reported);

/* Queue one change and wait for it. Return 0 or -1. */
int store_put_session_now(struct gb_store *s, const struct gb_session_rec *rec, struct gb_error *err);
int store_put_buffer_now(struct gb_store *s, const struct gb_buffer_rec *rec, struct gb_error *err);
int store_edit_now(struct gb_store *s, const struct gb_store_edit *edits, size_t count, struct gb_error *err);
int store_flush_now(struct gb_store *s, struct gb_error *err);

/* Holds the writer in a done callback, so that all changes queued meanwhile form one group. */
struct store_gate {
    sem_t entered;
    sem_t opened;
};

void store_gate_close(struct store_gate *gate, struct gb_store *s);
void store_gate_open(struct store_gate *gate);

/* One integer, or one text of at most 63 bytes, from the database through a connection of the test's own. */
int64_t store_sql_int(const char *path, const char *sql);
void store_sql_text(const char *path, const char *sql, char out[64]);
void store_sql_exec(const char *path, const char *sql);

#endif
