/* The records of pools. */
#include <stdio.h>

#include "gb_test.h"
#include "store_fixture.h"

struct pools {
    struct gb_pool_rec rec[4];
    unsigned count;
};

static int see_pool(void *arg, const void *row, struct gb_error *err) {
    const struct gb_pool_rec *rec = row;
    struct pools *seen = arg;

    (void)err;
    ck_assert_uint_lt(seen->count, 4);
    seen->rec[seen->count++] = *rec;
    return 0;
}

static void assert_pool(const struct gb_pool_rec *got, const struct gb_pool_rec *want) {
    ck_assert_int_eq(got->id, want->id);
#define GB_POOL_FIELD(name, type, ...) ck_assert_msg(GB_SAME_##type(got->name, want->name), #name);
#define GB_POOL_CONFIG(name, type, ...) ck_assert_msg(GB_SAME_##type(got->config.name, want->config.name), #name);
#include "model/pool.def"
    ck_assert_int_eq(got->version, want->version);
    ck_assert_int_eq(got->created_at_us, want->created_at_us);
    ck_assert_int_eq(got->updated_at_us, want->updated_at_us);
}

static void fill_phrase(void *at, unsigned i) {
    struct gb_phrase *phrase = at;

    snprintf(phrase->s, sizeof(phrase->s), "text %u", i);
}

static void fill_nothing(void *at, unsigned i) {
    (void)at;
    (void)i;
}

/* Each text of the list that is not set below has a value of its own in each record. */
static void fill_texts(struct gb_pool_rec *rec, unsigned i) {
#define FILL(at) _Generic(at, struct gb_phrase * : fill_phrase, default : fill_nothing)(at, i);
#define GB_POOL_FIELD(name, ...) FILL(&rec->name)
#define GB_POOL_CONFIG(name, ...) FILL(&rec->config.name)
#include "model/pool.def"
}

START_TEST(every_field_of_a_pool_comes_back) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_rec session = store_session(1, "s");
    struct gb_pool_rec pool[4];
    struct gb_store_ids last;
    struct pools seen = {.count = 0};
    unsigned i;

    store_fixture_init(&f);
    gb_assert_ok(store_put_session_now(f.store, &session, &err), err);
    session = store_session(2, "t");
    gb_assert_ok(store_put_session_now(f.store, &session, &err), err);
    for (i = 0; i < 4; i++) { /* each flag alone once */
        pool[i] = (struct gb_pool_rec){.id = 5 + i,
                                       .session_id = i == 3 ? 2 : 1,
                                       .device = (int)i,
                                       .config = {.max_bytes = i * 1000,
                                                  .release_threshold_bytes = i == 1 ? GB_UNLIMITED : i,
                                                  .follow_event_dependencies = i == 0,
                                                  .allow_opportunistic = i == 1,
                                                  .allow_internal_dependencies = i == 2,
                                                  .exportable = i == 3},
                                       .version = 1,
                                       .created_at_us = 1700000000000005 + i,
                                       .updated_at_us = 1700000000000105 + i};
        snprintf(pool[i].name.s, sizeof(pool[i].name.s), "p%u", i % 3); /* of two sessions the same */
        fill_texts(&pool[i], i);
        gb_store_put_pool(f.store, &pool[i], NULL, NULL, NULL);
    }
    pool[1].version = 9; /* again: an update */
    pool[1].config.release_threshold_bytes = 77;
    gb_store_put_pool(f.store, &pool[1], NULL, NULL, NULL);
    gb_store_delete_pool(f.store, 7, NULL, NULL, NULL);
    gb_store_delete_pool(f.store, 1234, NULL, NULL, NULL);
    gb_assert_ok(store_flush_now(f.store, &err), err);
    store_fixture_close(&f);
    store_fixture_open(&f);
    gb_assert_ok(gb_store_load(f.store, GB_STORE_POOLS, see_pool, &seen, &err), err);
    ck_assert_uint_eq(seen.count, 3);
    assert_pool(&seen.rec[0], &pool[0]);
    assert_pool(&seen.rec[1], &pool[1]);
    assert_pool(&seen.rec[2], &pool[3]);
    gb_store_delete_session(f.store, 1, false, NULL, NULL, NULL); /* removes its pools, too */
    gb_store_delete_pool(f.store, 8, NULL, NULL, NULL);
    store_fixture_close(&f);
    store_fixture_open(&f);
    gb_assert_ok(gb_store_last_ids(f.store, &last, &err), err);
    ck_assert_int_eq(last.pool, 8);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM pools"), 0);
    store_fixture_done(&f);
}
END_TEST

/* A column without a field would be lost with the next change of the record. */
START_TEST(columns_are_the_fields) {
    static const char sql[] = "SELECT count(*) = (SELECT count(*) FROM pragma_table_info('pools'))"
                              " FROM pragma_table_info('pools') WHERE name IN"
                              " ('id', 'version', 'created_at_us', 'updated_at_us'"
#define GB_POOL_FIELD(name, ...) ", '" #name "'"
#include "model/pool.def"
                              ")";
    struct store_fixture f;

    store_fixture_init(&f);
    ck_assert_int_eq(store_sql_int(f.path, sql), 1);
    store_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("store_pool");

    gb_test_add(suite, "fields", every_field_of_a_pool_comes_back, 60);
    gb_test_add(suite, "columns", columns_are_the_fields, 60);
    return gb_test_run(suite);
}
