/* Sessions of a node against their records: what came back after an absence, what a client reports, what an operator
 * takes over or deletes, and a directory that was lost. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fleet/records.h"
#include "fleet_fixture.h"
#include "gb_test.h"
#include "model/model.h"

#define KEY(rest) "/gpubuf/main/" rest
#define TXN "/v3/kv/txn"
#define MINE_MAX 64
#define RECORD(node, epoch, claim)                                                                                     \
    "{\"node\":\"" node "\",\"epoch\":" epoch ",\"claim\":\"" claim "\",\"on_partition\":\"serve\",\"labels\":{},"     \
    "\"quota\":null,\"state\":\"live\"}"

static struct node a;
static struct asked asked;

/* What the node has, and the outcomes that the fleet reported to it. By the node's lock. */
static struct gb_fleet_session mine[MINE_MAX];
static size_t mine_count;
static struct {
    struct gb_name name;
    enum gb_fleet_outcome outcome;
    uint64_t epoch;
} outcomes[2 * MINE_MAX];
static size_t outcome_count;
static char learned_uuid[40];

static size_t sessions(void *app, int64_t *cursor, struct gb_fleet_session *ret, size_t max) {
    struct node *node = app;
    size_t n = 0;

    pthread_mutex_lock(&node->lock);
    for (; (size_t)*cursor < mine_count && n < max; n++)
        ret[n] = mine[(*cursor)++];
    pthread_mutex_unlock(&node->lock);
    return n;
}

static bool session(void *app, const struct gb_name *name, struct gb_fleet_session *ret) {
    struct node *node = app;
    bool found = false;
    size_t i;

    pthread_mutex_lock(&node->lock);
    for (i = 0; i < mine_count && !found; i++)
        if (gb_name_equal(&mine[i].name, name)) {
            *ret = mine[i];
            found = true;
        }
    pthread_mutex_unlock(&node->lock);
    return found;
}

static struct gb_fleet_session raised(const struct gb_fleet_session *one, uint64_t epoch) {
    struct gb_fleet_session ret = *one;

    ret.epoch = epoch;
    ret.given = false;
    return ret;
}

static void reconcile(void *app, const struct gb_fleet_session *one, enum gb_fleet_outcome outcome, uint64_t epoch) {
    struct node *node = app;
    size_t i;

    pthread_mutex_lock(&node->lock);
    outcomes[outcome_count].name = one->name;
    outcomes[outcome_count].outcome = outcome;
    outcomes[outcome_count++].epoch = epoch;
    for (i = 0; i < mine_count; i++)
        if (gb_name_equal(&mine[i].name, &one->name))
            mine[i] = outcome == GB_FLEET_RAISED ? raised(&mine[i], epoch) : mine[i];
    node->changes++;
    pthread_cond_broadcast(&node->moved);
    pthread_mutex_unlock(&node->lock);
}

static void learned(void *app, const char *uuid) {
    (void)app;
    snprintf(learned_uuid, sizeof(learned_uuid), "%s", uuid);
}

static bool has(void *app, const struct gb_fleet_session *record) {
    struct gb_fleet_session one;

    return session(app, &record->name, &one) && strcmp(one.claim, record->claim) == 0;
}

/* The node has that session, at epoch 2 under the claim "9-9". */
static void have(const char *name) {
    struct gb_fleet_session *one = &mine[mine_count++];

    *one = (struct gb_fleet_session){.name = name_of(name), .node = name_of("a"), .epoch = 2, .claim = "9-9"};
    one->quota_bytes = GB_UNLIMITED;
    strcpy(one->labels, "{}");
}

static void open_node(unsigned ttl_s, const char *known) {
    struct gb_fleet_config config = config_of(&a, "a", NODE_UUID);

    config.ttl_s = ttl_s;
    config.known_uuid = known;
    config.on.sessions = sessions;
    config.on.session = session;
    config.on.reconcile = reconcile;
    config.on.learned = learned;
    config.on.has = has;
    node_open_with(&a, &config);
}

static void join(void) {
    open_node(3600, NULL);
    node_wait(&a, GB_FLEET_JOINED);
}

/* The same with a session that the directory has as well. */
static void join_with_s(void) {
    etcd_fake_put(etcd, KEY("sessions/s"), RECORD("a", "2", "9-9"), 0);
    etcd_fake_put(etcd, KEY("owned/a/s"), "", 0);
    have("s");
    join();
}

/* Waits until what is at the key has the text, or has it not. */
static void wait_record(const char *key, const char *text, bool has_it) {
    unsigned seen = etcd_fake_requests(etcd, TXN);
    const char *is;

    while (is = etcd_fake_get(etcd, key), (is && strstr(is, text)) != has_it) {
        etcd_fake_wait_requests(etcd, TXN, seen + 1);
        seen = etcd_fake_requests(etcd, TXN);
    }
}

/* Waits until the fleet has reported N outcomes. */
static void await_outcomes(size_t n) {
    pthread_mutex_lock(&a.lock);
    while (outcome_count < n)
        pthread_cond_wait(&a.moved, &a.lock);
    pthread_mutex_unlock(&a.lock);
}

static void setup(void) {
    mine_count = outcome_count = 0;
    learned_uuid[0] = '\0';
    asked_init(&asked);
    fleet_setup();
}

static void teardown(void) {
    fleet_teardown();
}

static struct gb_name name_s(void) {
    return name_of("s");
}

/* It was being given away when the process before this one ended, and is this node's still: what was sent then cannot
 * be carried out any more. */
START_TEST(one_that_was_not_given) {
    etcd_fake_put(etcd, KEY("sessions/s"), RECORD("a", "2", "9-9"), 0);
    etcd_fake_put(etcd, KEY("owned/a/s"), "", 0);
    have("s");
    mine[0].given = true;
    join();
    await_outcomes(1);
    ck_assert_int_eq(outcomes[0].outcome, GB_FLEET_RAISED);
    ck_assert_uint_eq(outcomes[0].epoch, 3);
    ck_assert_str_eq(etcd_fake_get(etcd, KEY("sessions/s")), RECORD("a", "3", "9-9"));
    node_close(&a);
}
END_TEST

/* --- coming back -------------------------------------------------------------------------------------------------- */

static const struct {
    const char *what;
    const char *record; /* NULL: none */
    bool b_alive;
    const char *is; /* afterwards; NULL: as it was */
    int outcome;    /* -1: no outcome */
    uint64_t epoch;
    uint64_t again;
} returns[] = {
    {"the same", RECORD("a", "2", "9-9"), false, NULL, -1, 0, 0},
    {"lost", NULL, false, RECORD("a", "3", "9-9"), GB_FLEET_RAISED, 3, 1},
    {"raised before a crash", RECORD("a", "5", "9-9"), false, NULL, GB_FLEET_RAISED, 5, 0},
    {"an old backup", RECORD("a", "1", "9-9"), false, RECORD("a", "3", "9-9"), GB_FLEET_RAISED, 3, 1},
    {"another has it", RECORD("b", "3", "6"), true, NULL, GB_FLEET_SUPERSEDED, 3, 0},
    {"another has it and is away", RECORD("b", "3", "6"), false, NULL, GB_FLEET_SUPERSEDED, 3, 0},
    {"another has it at this epoch", RECORD("b", "2", "6"), true, NULL, GB_FLEET_SUPERSEDED, 2, 0},
    {"an old backup, of another that is away", RECORD("b", "1", "6"), false, RECORD("a", "3", "9-9"), GB_FLEET_RAISED,
     3, 1},
    {"what was left of a registration", RECORD("a", "1", "7-7"), false, RECORD("a", "3", "9-9"), GB_FLEET_RAISED, 3, 0},
    {"deleted", "{\"node\":\"a\",\"epoch\":2,\"claim\":\"9-9\",\"on_partition\":\"serve\",\"state\":\"deleted\"}",
     false, NULL, GB_FLEET_SUPERSEDED, 2, 0},
    {"deleted long ago",
     "{\"node\":\"b\",\"epoch\":1,\"claim\":\"6\",\"on_partition\":\"serve\",\"state\":\"deleted\"}", false,
     RECORD("a", "3", "9-9"), GB_FLEET_RAISED, 3, 1},
    {"other labels",
     "{\"node\":\"a\",\"epoch\":2,\"claim\":\"9-9\",\"on_partition\":\"serve\",\"labels\":{\"k\":\"v\"}}", false,
     RECORD("a", "2", "9-9"), -1, 0, 0},
    {"of a later version", "{\"what\":1}", false, NULL, -1, 0, 0},
};
#define RETURNS (sizeof(returns) / sizeof(returns[0]))

START_TEST(a_node_that_comes_back) {
    struct gb_name s = name_s();
    const char *is = returns[_i].is ? returns[_i].is : returns[_i].record;
    bool mine_now = is && strstr(is, "\"a\"") && !strstr(is, "deleted") && !strstr(is, "what");

    fleet_add_b(returns[_i].b_alive);
    etcd_fake_delete(etcd, KEY("sessions/s"));
    etcd_fake_delete(etcd, KEY("owned/b/s"));
    if (returns[_i].record)
        etcd_fake_put(etcd, KEY("sessions/s"), returns[_i].record, 0);
    if (returns[_i].record && strstr(returns[_i].record, "\"b\"") && !strstr(returns[_i].record, "deleted"))
        etcd_fake_put(etcd, KEY("owned/b/s"), "", 0);
    else if (returns[_i].record && strstr(returns[_i].record, "9-9") && !strstr(returns[_i].record, "deleted"))
        etcd_fake_put(etcd, KEY("owned/a/s"), "", 0);
    have("s");
    join();
    ck_assert_msg(strcmp(etcd_fake_get(etcd, KEY("sessions/s")), is) == 0, "%s: %s", returns[_i].what,
                  etcd_fake_get(etcd, KEY("sessions/s")));
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("owned/a/s")), mine_now);
    ck_assert_uint_eq(outcome_count, returns[_i].outcome >= 0);
    if (returns[_i].outcome >= 0) {
        ck_assert_int_eq(outcomes[0].outcome, (enum gb_fleet_outcome)returns[_i].outcome);
        ck_assert_uint_eq(outcomes[0].epoch, returns[_i].epoch);
    }
    ck_assert_uint_eq(stat_of(&a).registered_again, returns[_i].again);
    ck_assert_uint_eq(stat_of(&a).superseded, returns[_i].outcome == GB_FLEET_SUPERSEDED);
    /* One that another has is refused until the node has seen to it. */
    ck_assert_int_eq(gb_fleet_owner_is_uncertain(a.fleet, "s"), returns[_i].outcome == GB_FLEET_SUPERSEDED);
    gb_fleet_reconciled(a.fleet, &s);
    ck_assert(!gb_fleet_owner_is_uncertain(a.fleet, "s"));
    node_close(&a);
}
END_TEST

/* By an old backup a node has it that is alive and has not, and does not say so yet. */
START_TEST(a_node_that_must_say_first_that_it_has_it_not) {
    fleet_add_b(true);
    etcd_fake_put(etcd, KEY("sessions/s"), RECORD("b", "1", "6"), 0);
    have("s");
    join();
    ck_assert_str_eq(etcd_fake_get(etcd, KEY("sessions/s")), RECORD("b", "1", "6"));
    ck_assert_uint_eq(outcome_count, 0);
    etcd_fake_delete(etcd, KEY("sessions/s"));
    etcd_fake_delete(etcd, KEY("owned/b/s"));
    await_outcomes(1); /* it checks again by itself */
    ck_assert_int_eq(outcomes[0].outcome, GB_FLEET_RAISED);
    ck_assert_str_eq(etcd_fake_get(etcd, KEY("sessions/s")), RECORD("a", "3", "9-9"));
    node_close(&a);
}
END_TEST

START_TEST(more_sessions_than_a_page) {
    char name[16];
    int i;

    for (i = 0; i < 50; i++) {
        snprintf(name, sizeof(name), "m%02d", i);
        have(name);
        if (i % 3 == 0)
            continue;
        snprintf(asked.call.url, sizeof(asked.call.url), KEY("sessions/%s"), name);
        etcd_fake_put(etcd, asked.call.url, RECORD("a", "2", "9-9"), 0);
    }
    join();
    ck_assert_uint_eq(outcome_count, 17);
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("sessions/m")), 50);
    ck_assert_uint_eq(stat_of(&a).registered_again, 17);
    node_close(&a);
}
END_TEST

/* --- reports ------------------------------------------------------------------------------------------------------ */

START_TEST(a_report_that_the_directory_refutes) {
    struct gb_name s = name_s();
    unsigned seen;

    join_with_s();
    ck_assert(!gb_fleet_owner_is_uncertain(a.fleet, "s"));
    etcd_fake_set_silent(etcd, true);
    seen = etcd_fake_requests(etcd, TXN);
    ck_assert(gb_fleet_report_epoch(a.fleet, &s, 9));
    ck_assert(!gb_fleet_owner_is_uncertain(a.fleet, "s")); /* what one client says is nothing to the others */
    etcd_fake_wait_requests(etcd, TXN, seen + 1);
    ck_assert(gb_fleet_report_epoch(a.fleet, &s, 9)); /* it was not denied */
    ck_assert(gb_fleet_report_epoch(a.fleet, &s, UINT64_MAX));
    ck_assert(!gb_fleet_owner_is_uncertain(a.fleet, "s"));
    etcd_fake_set_silent(etcd, false);
    while (gb_fleet_report_epoch(a.fleet, &s, 9)) /* until that is known to be wrong */
        usleep(1000);
    ck_assert_uint_eq(outcome_count, 0);
    ck_assert(!gb_fleet_owner_is_uncertain(a.fleet, "s"));
    node_close(&a);
}
END_TEST

START_TEST(a_report_that_is_right) {
    struct gb_name s = name_s();

    join_with_s();
    etcd_fake_put(etcd, KEY("sessions/s"), RECORD("b", "3", "6"), 0);
    gb_fleet_report_epoch(a.fleet, &s, 3);
    await_outcomes(1);
    ck_assert_int_eq(outcomes[0].outcome, GB_FLEET_SUPERSEDED);
    ck_assert(gb_fleet_owner_is_uncertain(a.fleet, "s"));
    gb_fleet_reconciled(a.fleet, &s);
    ck_assert(!gb_fleet_owner_is_uncertain(a.fleet, "s"));
    node_close(&a);
}
END_TEST

START_TEST(what_has_changed_is_written) {
    struct gb_name s = name_s();

    join_with_s();
    pthread_mutex_lock(&a.lock);
    mine[0].quota_bytes = 77;
    strcpy(mine[0].labels, "{\"k\":\"v\"}");
    pthread_mutex_unlock(&a.lock);
    gb_fleet_refresh(a.fleet, &s);
    ck_assert(!gb_fleet_owner_is_uncertain(a.fleet, "s")); /* it is served meanwhile */
    wait_record(KEY("sessions/s"), "\"quota\":77", true);
    ck_assert_ptr_nonnull(strstr(etcd_fake_get(etcd, KEY("sessions/s")), "\"epoch\":2"));
    ck_assert_ptr_nonnull(strstr(etcd_fake_get(etcd, KEY("sessions/s")), "{\"k\":\"v\"}"));
    ck_assert_uint_eq(outcome_count, 0);
    node_close(&a);
}
END_TEST

/* The end of a lease is near: another may have been made the owner. */
START_TEST(a_node_is_sure_while_its_lease_lives) {
    open_node(2, NULL);
    node_wait(&a, GB_FLEET_JOINED);
    ck_assert(gb_fleet_lease_is_valid(a.fleet));
    etcd_fake_set_silent(etcd, true);
    while (gb_fleet_lease_is_valid(a.fleet)) /* the lease is there for as long */
        ck_assert(etcd_fake_has_lease(etcd, NODE_UUID));
    etcd_fake_set_silent(etcd, false);
    while (!gb_fleet_lease_is_valid(a.fleet))
        usleep(1000);
    ck_assert_int_eq(stat_of(&a).state, GB_FLEET_JOINED);
    node_close(&a);
    open_node(2, NULL);
    ck_assert(!gb_fleet_lease_is_valid(a.fleet)); /* nor before it has joined */
    node_wait(&a, GB_FLEET_JOINED);
    node_close(&a);
}
END_TEST

/* --- taking over -------------------------------------------------------------------------------------------------- */

static enum gb_code take(const char *name) {
    asked_init(&asked);
    asked.registration.session.name = name_of(name);
    gb_fleet_take_over(a.fleet, &asked.registration);
    return asked_wait(&asked);
}

START_TEST(a_session_is_taken) {
    join();
    fleet_add_b(_i == 0);
    if (_i == 2)
        etcd_fake_lose_answers(etcd, KEY("owned/a/s"), 1);
    ck_assert_int_eq(take("none"), GB_ERR_SESSION_NOT_FOUND);
    ck_assert_int_eq(take("s"), _i == 0 ? GB_ERR_NODE_ALIVE : GB_OK);
    if (_i == 0) {
        ck_assert_str_eq(etcd_fake_get(etcd, KEY("sessions/s")), SESSION_OF_B);
    } else {
        ck_assert_uint_eq(asked.registration.session.epoch, 4);
        ck_assert_str_eq(asked.registration.session.labels, "{\"k\":\"v\"}");
        ck_assert_uint_eq(asked.registration.session.quota_bytes, 4096);
        ck_assert_int_eq(asked.registration.session.on_partition, GB_ON_PARTITION_STOP);
        ck_assert_str_ne(asked.registration.session.claim, "6");
        ck_assert_ptr_nonnull(strstr(etcd_fake_get(etcd, KEY("sessions/s")), asked.registration.session.claim));
        ck_assert_ptr_nonnull(etcd_fake_get(etcd, KEY("owned/a/s")));
        ck_assert_ptr_null(etcd_fake_get(etcd, KEY("owned/b/s")));
    }
    node_close(&a);
}
END_TEST

/* What was taken and then not made is given back; also what a crash left so. */
START_TEST(a_takeover_is_given_back) {
    struct gb_fleet_session before = {.name = name_s()};
    struct gb_fleet_session after = {.name = name_s()};

    fleet_add_b(false);
    gb_assert_ok(gb_fleet_session_read(SESSION_OF_B, strlen(SESSION_OF_B), &before, &err), err);
    join();
    ck_assert_int_eq(take("s"), GB_OK);
    ck_assert_ptr_nonnull(strstr(etcd_fake_get(etcd, KEY("sessions/s")), "\"former\""));
    if (_i == 0) {
        gb_fleet_unregister(a.fleet, &asked.registration.session.name, asked.registration.session.claim, false);
    } else {
        node_close(&a);
        join();
    }
    wait_record(KEY("owned/a/s"), "", false);
    gb_assert_ok(gb_fleet_session_read(etcd_fake_get(etcd, KEY("sessions/s")),
                                       strlen(etcd_fake_get(etcd, KEY("sessions/s"))), &after, &err),
                 err);
    ck_assert_uint_eq(after.epoch, 4); /* which clients may have seen */
    before.epoch = after.epoch;
    ck_assert_mem_eq(&before, &after, sizeof(before));
    ck_assert_ptr_nonnull(etcd_fake_get(etcd, KEY("owned/b/s")));
    node_close(&a);
}
END_TEST

/* Once it is made, there is no way back. */
START_TEST(a_takeover_is_confirmed) {
    struct gb_name s = name_s();

    fleet_add_b(false);
    join();
    ck_assert_int_eq(take("s"), GB_OK);
    pthread_mutex_lock(&a.lock);
    mine[mine_count++] = asked.registration.session;
    memset(&mine[0].former, 0, sizeof(mine[0].former));
    pthread_mutex_unlock(&a.lock);
    gb_fleet_refresh(a.fleet, &s);
    wait_record(KEY("sessions/s"), "former", false);
    ck_assert_ptr_nonnull(strstr(etcd_fake_get(etcd, KEY("sessions/s")), "\"epoch\":4"));
    node_close(&a);
}
END_TEST

START_TEST(one_of_two_takes_it) {
    struct node c = {0};
    struct asked other;

    join();
    node_open_long(&c, "c", 99);
    fleet_add_b(false);
    asked_init(&asked);
    asked_init(&other);
    asked.registration.session.name = other.registration.session.name = name_s();
    gb_fleet_take_over(a.fleet, &asked.registration);
    gb_fleet_take_over(c.fleet, &other.registration);
    asked_wait(&asked);
    asked_wait(&other);
    ck_assert((asked.ask.error.code == GB_OK) != (other.ask.error.code == GB_OK));
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("owned/a/")) + etcd_fake_count(etcd, KEY("owned/c/")), 1);
    node_close(&c);
    node_close(&a);
}
END_TEST

/* --- deleting ----------------------------------------------------------------------------------------------------- */

static enum gb_code tombstone(const char *name) {
    asked_init(&asked);
    asked.tombstone.session = name_of(name);
    gb_fleet_tombstone(a.fleet, &asked.tombstone);
    return asked_wait(&asked);
}

START_TEST(a_session_is_deleted) {
    struct gb_fleet_register made;

    join();
    fleet_add_b(false);
    ck_assert_int_eq(find_session(&a, "s", false, NULL), GB_OK);
    ck_assert_int_eq(tombstone("none"), GB_ERR_SESSION_NOT_FOUND);
    ck_assert_int_eq(tombstone("s"), GB_OK);
    ck_assert_int_eq(tombstone("s"), GB_ERR_SESSION_NOT_FOUND);
    ck_assert_ptr_null(etcd_fake_get(etcd, KEY("owned/b/s")));
    ck_assert_ptr_nonnull(strstr(etcd_fake_get(etcd, KEY("sessions/s")), "\"state\":\"deleted\""));
    ck_assert_int_eq(find_session(&a, "s", false, NULL), GB_ERR_SESSION_NOT_FOUND);
    ck_assert_int_eq(take("s"), GB_ERR_SESSION_NOT_FOUND);
    asked_init(&asked);
    asked.sessions.limit = 10;
    gb_fleet_list_sessions(a.fleet, &asked.sessions);
    ck_assert_int_eq(asked_wait(&asked), GB_OK);
    ck_assert_uint_eq(asked.sessions.count, 0);
    free(asked.sessions.items);
    ck_assert_int_eq(register_session(&a, "s", &made), GB_OK);
    ck_assert_uint_eq(made.session.epoch, 4);
    node_close(&a);
}
END_TEST

/* Clients that have seen a higher epoch of the former session are not to take the next one for an older. */
START_TEST(epochs_rise_beyond_the_end_of_a_session) {
    struct gb_fleet_register made;

    join();
    fleet_add_b(false);
    ck_assert_int_eq(take("s"), GB_OK);
    gb_fleet_unregister(a.fleet, &asked.registration.session.name, asked.registration.session.claim, true);
    if (_i == 1) /* otherwise its record may be there still */
        wait_record(KEY("sessions/s"), "deleted", true);
    ck_assert_int_eq(register_session(&a, "s", &made), GB_OK);
    ck_assert_uint_eq(made.session.epoch, 5);
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("owned/a/")), 1);
    node_close(&a);
}
END_TEST

/* What a crash left of a session becomes a tombstone, too. */
START_TEST(epochs_rise_beyond_a_crash) {
    struct gb_fleet_register made;
    enum gb_code code;

    fleet_add_b(false);
    etcd_fake_put(etcd, KEY("sessions/s"), RECORD("a", "7", "7-7"), 0);
    etcd_fake_delete(etcd, KEY("owned/b/s"));
    etcd_fake_put(etcd, KEY("owned/a/s"), "", 0);
    join();
    do /* another node may have it, if the directory was restored */
        code = register_session(&a, "s", &made);
    while (code == GB_ERR_OWNER_UNKNOWN);
    ck_assert_int_eq(code, GB_OK);
    ck_assert_uint_eq(made.session.epoch, 8);
    node_close(&a);
}
END_TEST

START_TEST(a_session_of_a_living_node_is_not_deleted) {
    join();
    fleet_add_b(true);
    ck_assert_int_eq(tombstone("s"), GB_ERR_NODE_ALIVE);
    ck_assert_str_eq(etcd_fake_get(etcd, KEY("sessions/s")), SESSION_OF_B);
    node_close(&a);
}
END_TEST

/* --- a directory that was restored -------------------------------------------------------------------------------- */

static void wait_epoch(const char *epoch) {
    char text[32];

    snprintf(text, sizeof(text), "\"epoch\":%s,", epoch);
    wait_record(KEY("sessions/s"), text, true);
}

/* Its record becomes another's without a higher epoch, which no node does. This one has held its lease all the time. */
START_TEST(what_became_anothers_by_a_restore_alone) {
    const char *record = _i % 2 ? RECORD("b", "1", "6") : RECORD("b", "2", "6");
    bool alive = _i / 2;
    struct gb_name s = name_s();

    etcd_fake_put(etcd, KEY("sessions/s"), RECORD("a", "2", "9-9"), 0);
    etcd_fake_put(etcd, KEY("owned/a/s"), "", 0);
    have("s");
    open_node(2, NULL);
    node_wait(&a, GB_FLEET_JOINED);
    fleet_add_b(alive);
    etcd_fake_put(etcd, KEY("sessions/s"), record, 0);
    gb_fleet_refresh(a.fleet, &s);
    await_outcomes(1); /* at once, or when the other has had the time to give it up */
    ck_assert_int_eq(outcomes[0].outcome, GB_FLEET_RAISED);
    ck_assert_str_eq(etcd_fake_get(etcd, KEY("sessions/s")), RECORD("a", "3", "9-9"));
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("owned/b/s")), 0);
    ck_assert(!gb_fleet_owner_is_uncertain(a.fleet, "s"));
    node_close(&a);
}
END_TEST

/* The record is of a node that has not got it, and has said so. */
START_TEST(what_another_releases) {
    fleet_add_b(true);
    etcd_fake_put(etcd, KEY("sessions/s"),
                  "{\"node\":\"b\",\"epoch\":2,\"claim\":\"6\",\"on_partition\":\"serve\",\"released\":true}", 0);
    have("s");
    join();
    ck_assert_uint_eq(outcome_count, 1);
    ck_assert_int_eq(outcomes[0].outcome, GB_FLEET_RAISED);
    ck_assert_str_eq(etcd_fake_get(etcd, KEY("sessions/s")), RECORD("a", "3", "9-9"));
    node_close(&a);
}
END_TEST

/* The node says so itself before the record goes, so that one that has the session takes it in between. */
START_TEST(what_this_node_releases) {
    etcd_fake_put(etcd, KEY("sessions/s"), RECORD("a", "1", "7-7"), 0);
    etcd_fake_put(etcd, KEY("owned/a/s"), "", 0);
    join();
    wait_record(KEY("sessions/s"), "\"released\":true", true);
    ck_assert_int_eq(register_session(&a, "s", NULL), GB_ERR_OWNER_UNKNOWN);
    while (etcd_fake_count(etcd, KEY("sessions/s")) > 0)
        usleep(1000);
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("owned/a/s")), 0);
    node_close(&a);
}
END_TEST

/* It was made again at a node that keeps it, while this one was away: nothing is served until that is certain, and then
 * it is the other's, above the epoch that clients know of this one. */
START_TEST(what_was_made_again_elsewhere) {
    fleet_add_b(true);
    etcd_fake_put(etcd, KEY("sessions/s"), RECORD("b", "1", "6"), 0);
    have("s");
    open_node(2, NULL);
    node_wait(&a, GB_FLEET_JOINED);
    ck_assert(gb_fleet_owner_is_uncertain(a.fleet, "s"));
    await_outcomes(1);
    ck_assert_int_eq(outcomes[0].outcome, GB_FLEET_SUPERSEDED);
    ck_assert_uint_eq(outcomes[0].epoch, 3);
    ck_assert_str_eq(etcd_fake_get(etcd, KEY("sessions/s")), RECORD("b", "3", "6"));
    node_close(&a);
}
END_TEST

/* Behind a proxy no connection ends, and the revision stays the same: the node checks its last write. */
START_TEST(what_the_node_wrote_last_is_lost) {
    etcd_fake_put(etcd, KEY("sessions/s"), RECORD("a", "2", "9-9"), 0);
    etcd_fake_put(etcd, KEY("owned/a/s"), "", 0);
    have("s");
    open_node(2, NULL);
    node_wait(&a, GB_FLEET_JOINED);
    ck_assert_uint_eq(gb_fleet_suspect_s(a.fleet), 0);
    etcd_fake_delete(etcd, KEY("sessions/s"));
    wait_epoch("3");
    ck_assert_uint_gt(gb_fleet_suspect_s(a.fleet), 0);
    ck_assert_int_eq(find_session(&a, "t", false, NULL), GB_ERR_OWNER_UNKNOWN);
    node_close(&a);
}
END_TEST

/* Another leader, or a proxy that says that the directory is away. */
START_TEST(what_tells_of_a_restart_behind_a_proxy) {
    join();
    ck_assert_int_eq(find_session(&a, "t", false, NULL), GB_ERR_SESSION_NOT_FOUND);
    if (_i == 0) {
        etcd_fake_set_term(etcd, 3);
    } else if (_i == 1) {
        etcd_fake_set_term(etcd, 1);
    } else {
        etcd_fake_set_answer(etcd, "<html>Bad Gateway</html>");
        etcd_fake_set_status(etcd, 502);
        ck_assert_int_eq(find_session(&a, "t", false, NULL), GB_ERR_DIRECTORY_UNAVAILABLE);
        etcd_fake_set_answer(etcd, NULL);
        etcd_fake_set_status(etcd, 0);
    }
    while (find_session(&a, "t", false, NULL) == GB_ERR_DIRECTORY_UNAVAILABLE)
        usleep(1000);
    ck_assert_int_eq(find_session(&a, "t", false, NULL), GB_ERR_OWNER_UNKNOWN);
    node_close(&a);
}
END_TEST

/* Its owner may be cut off, and serve on: a session that is made again under its name has another epoch. If the
 * directory has surely lost something, that holds for any name. */
START_TEST(epochs_rise_beyond_a_restore) {
    struct gb_fleet_register made;
    struct gb_fleet_find found;
    enum gb_code code;

    fleet_add_b(true);
    open_node(2, NULL);
    node_wait(&a, GB_FLEET_JOINED);
    ck_assert_int_eq(find_session(&a, "s", true, &found), GB_OK);
    etcd_fake_delete(etcd, KEY("sessions/s"));
    etcd_fake_delete(etcd, KEY("owned/b/s"));
    etcd_fake_set_term(etcd, _i == 0 ? 3 : 1);
    while (gb_fleet_suspect_s(a.fleet) == 0)
        find_session(&a, "t", false, NULL);
    do
        code = register_session(&a, _i == 0 ? "s" : "u", &made);
    while (code == GB_ERR_OWNER_UNKNOWN || code == GB_ERR_DIRECTORY_UNAVAILABLE);
    ck_assert_int_eq(code, GB_OK);
    ck_assert_uint_eq(made.session.epoch, found.session.epoch + 1);
    node_close(&a);
}
END_TEST

/* --- a directory that was lost ------------------------------------------------------------------------------------ */

START_TEST(a_directory_is_made_anew) {
    char meta[80];

    have("s");
    open_node(2, NULL);
    node_wait(&a, GB_FLEET_JOINED);
    ck_assert_uint_eq(outcome_count, 1);
    ck_assert_str_eq(learned_uuid, stat_of(&a).fleet_uuid);
    etcd_fake_wipe(etcd);
    etcd_fake_set_cluster(etcd, 7);
    node_wait(&a, GB_FLEET_ALONE);
    snprintf(meta, sizeof(meta), "{\"uuid\":\"%s\",\"schema\":1}", learned_uuid);
    etcd_fake_put(etcd, KEY("meta"), meta, 0);
    node_wait(&a, GB_FLEET_JOINED);
    ck_assert_uint_eq(outcome_count, 2);
    ck_assert_uint_eq(outcomes[1].epoch, 4);
    ck_assert_str_eq(etcd_fake_get(etcd, KEY("sessions/s")), RECORD("a", "4", "9-9"));
    ck_assert_str_eq(stat_of(&a).cluster_id, "7");
    node_close(&a);
}
END_TEST

START_TEST(a_node_with_sessions_of_another_fleet) {
    if (_i == 0)
        have("s");
    open_node(2, "00000000-0000-4000-8000-000000000000");
    if (_i == 0) {
        node_wait(&a, GB_FLEET_ALONE);
        while (!strstr(stat_of(&a).why.detail, "--rebuild --uuid 00000000-0000-4000-8000-000000000000"))
            usleep(1000);
        ck_assert_uint_eq(etcd_fake_count(etcd, KEY("sessions/")), 0);
        ck_assert_str_eq(learned_uuid, "");
    } else {
        node_wait(&a, GB_FLEET_JOINED);
        ck_assert_str_eq(learned_uuid, stat_of(&a).fleet_uuid);
    }
    node_close(&a);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("reconcile");
    TCase *cases = tcase_create("reconcile");

    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, a_node_that_comes_back, 0, (int)RETURNS);
    tcase_add_test(cases, one_that_was_not_given);
    tcase_add_test(cases, a_node_that_must_say_first_that_it_has_it_not);
    tcase_add_test(cases, more_sessions_than_a_page);
    tcase_add_test(cases, a_report_that_the_directory_refutes);
    tcase_add_test(cases, a_report_that_is_right);
    tcase_add_test(cases, what_has_changed_is_written);
    tcase_add_test(cases, a_node_is_sure_while_its_lease_lives);
    tcase_add_loop_test(cases, a_session_is_taken, 0, 3);
    tcase_add_loop_test(cases, a_takeover_is_given_back, 0, 2);
    tcase_add_test(cases, a_takeover_is_confirmed);
    tcase_add_test(cases, one_of_two_takes_it);
    tcase_add_test(cases, a_session_is_deleted);
    tcase_add_loop_test(cases, epochs_rise_beyond_the_end_of_a_session, 0, 2);
    tcase_add_test(cases, epochs_rise_beyond_a_crash);
    tcase_add_test(cases, a_session_of_a_living_node_is_not_deleted);
    tcase_add_loop_test(cases, what_became_anothers_by_a_restore_alone, 0, 4);
    tcase_add_test(cases, what_another_releases);
    tcase_add_test(cases, what_this_node_releases);
    tcase_add_test(cases, what_was_made_again_elsewhere);
    tcase_add_test(cases, what_the_node_wrote_last_is_lost);
    tcase_add_loop_test(cases, what_tells_of_a_restart_behind_a_proxy, 0, 3);
    tcase_add_loop_test(cases, epochs_rise_beyond_a_restore, 0, 2);
    tcase_add_test(cases, a_directory_is_made_anew);
    tcase_add_loop_test(cases, a_node_with_sessions_of_another_fleet, 0, 2);
    suite_add_tcase(suite, cases);
    return gb_test_run(suite);
}
