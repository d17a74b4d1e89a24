#include "store/walk.h"

#include "store/db.h"
#include "store/rows.h"

struct session_walk {
    int (*visit)(void *, const struct gb_session_rec *, struct gb_error *);
    void *arg;
    struct gb_session_rec rec;
};

static int session_row(void *arg, sqlite3_stmt *stmt, struct gb_error *err) {
    struct session_walk *walk = arg;
    int r;

    if (gb_row_read_session(stmt, &walk->rec, err) < 0)
        return -1;
    r = walk->visit(walk->arg, &walk->rec, err);
    gb_session_rec_done(&walk->rec);
    return r;
}

int gb_walk_sessions(sqlite3 *db, int (*visit)(void *, const struct gb_session_rec *, struct gb_error *), void *arg,
                     struct gb_error *err) {
    struct session_walk walk = {.visit = visit, .arg = arg};

    return gb_db_each_row(db, gb_row_get_sessions_sql, session_row, &walk, err);
}

struct buffer_walk {
    int (*visit)(void *, const struct gb_buffer_rec *, struct gb_error *);
    void *arg;
    struct gb_buffer_rec rec;
};

static int buffer_row(void *arg, sqlite3_stmt *stmt, struct gb_error *err) {
    struct buffer_walk *walk = arg;
    int r;

    if (gb_row_read_buffer(stmt, &walk->rec, err) < 0)
        return -1;
    r = walk->visit(walk->arg, &walk->rec, err);
    gb_buffer_rec_done(&walk->rec);
    return r;
}

int gb_walk_buffers(sqlite3 *db, int (*visit)(void *, const struct gb_buffer_rec *, struct gb_error *), void *arg,
                    struct gb_error *err) {
    struct buffer_walk walk = {.visit = visit, .arg = arg};

    return gb_db_each_row(db, gb_row_get_buffers_sql, buffer_row, &walk, err);
}

struct pool_walk {
    int (*visit)(void *, const struct gb_pool_rec *, struct gb_error *);
    void *arg;
    struct gb_pool_rec rec;
};

static int pool_row(void *arg, sqlite3_stmt *stmt, struct gb_error *err) {
    struct pool_walk *walk = arg;

    return gb_row_read_pool(stmt, &walk->rec, err) < 0 ? -1 : walk->visit(walk->arg, &walk->rec, err);
}

int gb_walk_pools(sqlite3 *db, int (*visit)(void *, const struct gb_pool_rec *, struct gb_error *), void *arg,
                  struct gb_error *err) {
    struct pool_walk walk = {.visit = visit, .arg = arg};

    return gb_db_each_row(db, gb_row_get_pools_sql, pool_row, &walk, err);
}
