#include "fleet_fixture.h"

#include <string.h>

#include "base/container.h"
#include "gb_test.h"
#include "model/model.h"

struct etcd_fake *etcd;
struct gb_error err;

void fleet_setup(void) {
    struct gb_fleet_config config = {.fleet = "main"};
    char uuid[40];

    etcd = etcd_fake_start();
    err = GB_ERROR_INIT;
    config.endpoints = etcd_fake_url(etcd);
    gb_assert_ok(gb_fleet_init(&config, uuid, &err), err);
}

void fleet_teardown(void) {
    etcd_fake_stop(etcd);
}

void fleet_add_b(bool alive) {
    etcd_fake_put(etcd, "/gpubuf/main/nodes/b", NODE_B, 0);
    if (alive)
        etcd_fake_put(etcd, "/gpubuf/main/alive/b", ALIVE_B, 0);
    etcd_fake_put(etcd, "/gpubuf/main/sessions/s", SESSION_OF_B, 0);
    etcd_fake_put(etcd, "/gpubuf/main/owned/b/s", "", 0);
}

struct gb_name name_of(const char *text) {
    struct gb_name name = {{0}};

    gb_assert_ok(gb_name_parse("name", text, strlen(text), &name, &err), err);
    return name;
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

static size_t devices(void *app, struct gb_fleet_device ret[GB_FLEET_DEVICES_MAX]) {
    struct node *node = app;

    ret[0] = (struct gb_fleet_device){.uuid = "GPU-0", .name = "fake", .bytes = 1000};
    pthread_mutex_lock(&node->lock);
    ret[0].free_bytes = node->free_bytes;
    pthread_mutex_unlock(&node->lock);
    return 1;
}

static bool has(void *app, const struct gb_fleet_session *record) {
    const struct node *node = app;

    (void)record;
    return node->has;
}

static void changed(void *app) {
    struct node *node = app;

    struct gb_fleet_stat stat;

    pthread_mutex_lock(&node->lock);
    if (node->fleet) {
        gb_fleet_stat(node->fleet, &stat);
        node->seen |= 1u << stat.state;
    }
    node->changes++;
    pthread_cond_broadcast(&node->moved);
    pthread_mutex_unlock(&node->lock);
}

struct gb_fleet_config config_of(struct node *node, const char *name, uint64_t uuid) {
    static struct gb_fleet_url urls[1] = {{.network = {"default"}, .url = "http://127.0.0.1:7070"}};
    struct gb_fleet_config config = {.fleet = "main", .labels = "{\"site\":\"x\"}", .version = "1.0", .ttl_s = 2};

    config.endpoints = etcd_fake_url(etcd);
    config.node = name_of(name);
    config.uuid = uuid;
    config.urls = urls;
    config.url_count = 1;
    config.on.app = node;
    config.on.devices = devices;
    config.on.has = has;
    config.on.changed = changed;
    return config;
}

void node_open_with(struct node *node, const struct gb_fleet_config *config) {
    pthread_mutex_init(&node->lock, NULL);
    pthread_cond_init(&node->moved, NULL);
    node->free_bytes = 900;
    node->changes = 0;
    node->seen = 0;
    node->fleet = NULL;
    pthread_mutex_lock(&node->lock);
    gb_assert_ok(gb_fleet_open(config, &node->fleet, &err), err);
    pthread_mutex_unlock(&node->lock);
}

void node_open(struct node *node, const char *name, uint64_t uuid) {
    struct gb_fleet_config config = config_of(node, name, uuid);

    node_open_with(node, &config);
}

void node_close(struct node *node) {
    gb_fleet_close(node->fleet);
    node->fleet = NULL;
    pthread_cond_destroy(&node->moved);
    pthread_mutex_destroy(&node->lock);
}

struct gb_fleet_stat stat_of(struct node *node) {
    struct gb_fleet_stat stat;

    gb_fleet_stat(node->fleet, &stat);
    return stat;
}

/* Waits until the state is that one, or is not. */
static enum gb_fleet_state wait_for(struct node *node, enum gb_fleet_state state, bool equal) {
    enum gb_fleet_state now;

    pthread_mutex_lock(&node->lock);
    for (;;) {
        unsigned seen = node->changes;

        pthread_mutex_unlock(&node->lock);
        now = stat_of(node).state;
        pthread_mutex_lock(&node->lock);
        if ((now == state) == equal)
            break;
        while (node->changes == seen)
            pthread_cond_wait(&node->moved, &node->lock);
    }
    pthread_mutex_unlock(&node->lock);
    return now;
}

void node_wait(struct node *node, enum gb_fleet_state state) {
    wait_for(node, state, true);
}

enum gb_fleet_state node_wait_not(struct node *node, enum gb_fleet_state state) {
    return wait_for(node, state, false);
}

void node_wait_seen(struct node *node, enum gb_fleet_state state) {
    pthread_mutex_lock(&node->lock);
    while (!(node->seen & 1u << state))
        pthread_cond_wait(&node->moved, &node->lock);
    pthread_mutex_unlock(&node->lock);
}

void node_open_long(struct node *node, const char *name, uint64_t uuid) {
    struct gb_fleet_config config = config_of(node, name, uuid);

    config.ttl_s = 3600;
    node_open_with(node, &config);
    node_wait(node, GB_FLEET_JOINED);
}

/* --- asks --------------------------------------------------------------------------------------------------------- */

void waiter_init(struct waiter *waiter) {
    pthread_mutex_init(&waiter->lock, NULL);
    pthread_cond_init(&waiter->ended, NULL);
    waiter->done = 0;
}

static void waiter_end(struct waiter *waiter) {
    pthread_mutex_lock(&waiter->lock);
    waiter->done++;
    pthread_cond_broadcast(&waiter->ended);
    pthread_mutex_unlock(&waiter->lock);
}

void waiter_wait(struct waiter *waiter, unsigned n) {
    pthread_mutex_lock(&waiter->lock);
    while (waiter->done < n)
        pthread_cond_wait(&waiter->ended, &waiter->lock);
    pthread_mutex_unlock(&waiter->lock);
}

static void on_found(struct gb_fleet_ask *ask) {
    waiter_end(gb_container_of(ask, struct find, find.ask)->waiter);
}

bool find_begin(struct node *node, const char *session, bool linearizable, struct find *find, struct waiter *waiter) {
    struct gb_name name = name_of(session);

    find->find.ask.done = on_found;
    find->waiter = waiter;
    return gb_fleet_find(node->fleet, &name, linearizable, &find->find);
}

enum gb_code find_session(struct node *node, const char *session, bool linearizable, struct gb_fleet_find *ret) {
    struct waiter waiter;
    struct find find = {0};

    waiter_init(&waiter);
    if (!find_begin(node, session, linearizable, &find, &waiter))
        waiter_wait(&waiter, 1);
    if (ret)
        *ret = find.find;
    return find.find.ask.error.code;
}

static void on_asked(struct gb_fleet_ask *ask) {
    waiter_end(&((struct asked *)ask)->waiter);
}

void asked_init(struct asked *asked) {
    memset(asked, 0, sizeof(*asked));
    waiter_init(&asked->waiter);
    asked->ask.done = on_asked;
}

enum gb_code asked_wait(struct asked *asked) {
    waiter_wait(&asked->waiter, 1);
    return asked->ask.error.code;
}

enum gb_code register_session(struct node *node, const char *session, struct gb_fleet_register *ret) {
    struct asked asked;
    enum gb_code code;

    asked_init(&asked);
    asked.registration.session.name = name_of(session);
    asked.registration.session.quota_bytes = GB_UNLIMITED;
    gb_fleet_register(node->fleet, &asked.registration);
    code = asked_wait(&asked);
    if (ret)
        *ret = asked.registration;
    return code;
}
