/* A fleet's node against a small etcd, and asks that are waited for. */
#ifndef GB_TEST_FLEET_FIXTURE_H
#define GB_TEST_FLEET_FIXTURE_H

#include <pthread.h>

#include "etcd_fake.h"
#include "fleet/fleet.h"

#define NODE_UUID 4242

/* What a node's callbacks say, and their count. */
struct node {
    struct gb_fleet *fleet;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    unsigned changes;
    unsigned seen; /* bits of the states that there were */
    bool has;      /* all sessions that are asked for */
    uint64_t free_bytes;
};

extern struct etcd_fake *etcd;
extern struct gb_error err;

void fleet_setup(void); /* an etcd with the fleet "main" */
void fleet_teardown(void);
/* Another node's records: b, which owns the session s. */
#define SESSION_OF_B                                                                                                   \
    "{\"node\":\"b\",\"epoch\":3,\"claim\":\"6\",\"on_partition\":\"stop\",\"quota\":4096,\"labels\":{\"k\":\"v\"}}"
#define NODE_B "{\"uuid\":\"77\",\"urls\":{\"default\":\"http://10.0.0.2:7070\"},\"labels\":{\"site\":\"y\"}}"
#define ALIVE_B "{\"uuid\":\"77\",\"incarnation\":6,\"state\":\"ready\",\"free\":[],\"committed\":[]}"
void fleet_add_b(bool alive);

struct gb_name name_of(const char *text);
/* A configuration of that name and uuid, with the fake as the directory, a lease of 2 s, one URL and one device. */
struct gb_fleet_config config_of(struct node *node, const char *name, uint64_t uuid);
void node_open(struct node *node, const char *name, uint64_t uuid);
void node_open_with(struct node *node, const struct gb_fleet_config *config);
/* Opens a node with a lease of an hour, and waits until it has joined: afterwards it does nothing by itself. */
void node_open_long(struct node *node, const char *name, uint64_t uuid);
void node_close(struct node *node);
/* Waits until it has come about. The test's own time-out is the bound. */
void node_wait(struct node *node, enum gb_fleet_state state);
/* Until it is not that any more; returns what it is. */
enum gb_fleet_state node_wait_not(struct node *node, enum gb_fleet_state state);
/* Until it has been that since node->seen was cleared. */
void node_wait_seen(struct node *node, enum gb_fleet_state state);
struct gb_fleet_stat stat_of(struct node *node);

/* An ask and its end. */
struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    unsigned done;
};
void waiter_init(struct waiter *waiter);
void waiter_wait(struct waiter *waiter, unsigned n);

struct find {
    struct gb_fleet_find find;
    struct waiter *waiter;
};
/* Looks up and waits; returns the code. */
enum gb_code find_session(struct node *node, const char *session, bool linearizable, struct gb_fleet_find *ret);
/* Asks without waiting; returns whether it was answered at once. */
bool find_begin(struct node *node, const char *session, bool linearizable, struct find *find, struct waiter *waiter);
/* The same of the others; done sets the waiter. */
enum gb_code register_session(struct node *node, const char *session, struct gb_fleet_register *ret);

/* done of asks that are the first member of a structure whose next is the waiter's address. */
struct asked {
    union {
        struct gb_fleet_ask ask;
        struct gb_fleet_register registration;
        struct gb_fleet_nodes nodes;
        struct gb_fleet_sessions sessions;
        struct gb_fleet_forget forget;
        struct gb_fleet_tombstone tombstone;
        struct gb_fleet_place place;
        struct gb_fleet_call call;
    };
    struct waiter waiter;
};
void asked_init(struct asked *asked);
enum gb_code asked_wait(struct asked *asked);

#endif
