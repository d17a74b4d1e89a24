/* For the files of this folder: hub.c has the thread, the requests, whose a lease is and nodes that wait for orders;
 * check.c what may pass; gather.c readings and renewals that go on together. All but gb_hub_check, on the thread. */
#ifndef GB_HUB_INTERNAL_H
#define GB_HUB_INTERNAL_H

#include <jansson.h>
#include <pthread.h>

#include "base/map.h"
#include "fleet/fleet.h"
#include "hub/hub.h"

#define GB_HUB_OPS_MAX 128       /* of a transaction: etcd takes no more */
#define GB_HUB_WAIT_MS 30000     /* at most, for orders */
#define GB_HUB_RELAYS_MAX 48     /* requests with the directory at a time: more would only wait there */
#define GB_HUB_HELD_MS 2000      /* one that has waited for so long is refused: its node asks again by then */
#define GB_HUB_LEASES_MAX 100000 /* that are known here */

/* What a request is. */
struct gb_hub_checked {
    bool waits; /* for orders; else op goes on */
    enum gb_fleet_relay_op op;
    bool reads;        /* changes nothing */
    bool serializable; /* and is answered by one member */
    size_t ops;        /* of one that reads */
    int64_t lease;     /* of the other kinds */
    uint64_t wait_ms;
};
/* Whether the node may send it. *body: what was read, for the caller to unref. INVALID_ARGUMENT, FORBIDDEN. Pure. */
int gb_hub_check(const char *fleet, const struct gb_name *node, const char *op, const char *text,
                 struct gb_hub_checked *ret, json_t **body, struct gb_error *err);

struct gb_hub_item;
struct gb_hub_list {
    struct gb_hub_item *first;
    struct gb_hub_item **end;
};
void gb_hub_list_init(struct gb_hub_list *list);
void gb_hub_list_add(struct gb_hub_list *list, struct gb_hub_item *item);
struct gb_hub_item *gb_hub_list_take(struct gb_hub_list *list);

/* Requests that wait to go on together. */
struct gb_hub_batch {
    struct gb_hub_list items;
    size_t size;      /* what they make together, in what a request may have so many of */
    uint64_t sent_ms; /* when some went on last */
};
void gb_hub_batch_add(struct gb_hub_batch *batch, struct gb_hub_item *item, size_t size);
struct gb_hub_item *gb_hub_batch_take(struct gb_hub_batch *batch, size_t size); /* that of the first */
/* Sends what it is time for: some each every_ms, and those that make max at once. send takes some from the batch, and
 * returns false if there is no memory: they go on in a moment. Returns when the next is due; UINT64_MAX: none is. */
uint64_t gb_hub_batch_run(struct gb_hub *hub, struct gb_hub_batch *batch, uint64_t now_ms, uint64_t every_ms,
                          size_t max, bool (*send)(struct gb_hub *hub));

/* A request on its way. */
struct gb_hub_item {
    struct gb_hub_item *next;
    struct gb_hub *hub;
    struct gb_hub_ask *ask; /* by the lock; NULL: the answer is not wanted any more */
    struct gb_name node;
    struct gb_hub_checked is;
    json_t *body;
    char *text;
    struct gb_error error;
    int status;
    char *answer;
    uint64_t until_ms;           /* of one that waits */
    uint64_t since;              /* the look at orders that is the first for it */
    struct gb_hub_list together; /* of one that goes on for several: these */
    struct gb_fleet_relay relay;
    char *held; /* the text of one that waits to go on */
    uint64_t held_ms;
    void (*relayed)(struct gb_hub_item *item); /* on the thread, with relay.ask.error */
};
/* Whose a lease is. */
struct gb_hub_lease {
    char key[24];
    struct gb_name node;
};

struct gb_hub {
    struct gb_fleet *fleet;
    char *name;
    pthread_t thread;

    /* The thread's. */
    size_t relays;           /* that have not been answered */
    struct gb_hub_list held; /* that wait until there are less */
    struct gb_map leases;    /* by key: struct gb_hub_lease */
    struct gb_hub_batch reads;
    struct gb_hub_batch renewals;
    struct gb_hub_list waits;
    size_t waiting;
    uint64_t wait_due_ms;     /* when one of them is to be answered, or orders are to be looked at */
    struct gb_hub_item *look; /* at orders; NULL: none is open */
    uint64_t looks;           /* begun */
    uint64_t looked_ms;
    json_t *header; /* of the directory's last answer; NULL: none yet */

    pthread_mutex_t lock; /* a leaf. Guards all below */
    pthread_cond_t woken;
    pthread_cond_t delivered;
    struct gb_hub_list queue;
    struct gb_hub_list relayed;
    struct gb_hub_ask *delivering;
    bool draining;
    bool stopping;
    struct gb_hub_stat stat;
};

/* "/gpubuf/FLEET/" and what is behind it. */
#define GB_HUB_KEY_SIZE (2 * GB_NAME_MAX + 32)
void gb_hub_key(const char *fleet, const char *kind, const char *name, char ret[GB_HUB_KEY_SIZE]);

/* The time of gb_clock_ns, in milliseconds. */
uint64_t gb_hub_now_ms(void);
/* An item of the hub's own, or NULL. */
struct gb_hub_item *gb_hub_item_new(struct gb_hub *hub);
void gb_hub_item_free(struct gb_hub_item *item);
/* Sends text on; relayed runs when there is an answer. */
void gb_hub_relay(struct gb_hub_item *item, enum gb_fleet_relay_op op, const char *text, bool reads, bool serializable,
                  void (*relayed)(struct gb_hub_item *item));
/* Gives item->status and item->answer, or item->error, and frees the item. */
void gb_hub_answer(struct gb_hub_item *item);
/* The same with what the directory has answered. */
void gb_hub_answer_relayed(struct gb_hub_item *item);
void gb_hub_fail(struct gb_hub_item *item, const struct gb_error *err);
/* So many went on as one. */
void gb_hub_count_gathered(struct gb_hub *hub, size_t count);
/* Sends a request on as it came. */
void gb_hub_pass(struct gb_hub_item *item);

/* A request with a lease: it goes on if that is the node's. */
void gb_hub_lease_begin(struct gb_hub_item *item);
void gb_hub_leases_free(struct gb_hub *hub);

void gb_hub_gather(struct gb_hub_item *item);
/* Sends what it is time for. Returns when the next is due; UINT64_MAX: nothing is. */
uint64_t gb_hub_gather_run(struct gb_hub *hub, uint64_t now_ms);

/* The same for a renewal of a lease that is the node's. */
void gb_hub_renew(struct gb_hub_item *item);
uint64_t gb_hub_renew_run(struct gb_hub *hub, uint64_t now_ms);

void gb_hub_wait_begin(struct gb_hub_item *item);
uint64_t gb_hub_waits_run(struct gb_hub *hub, uint64_t now_ms, bool draining);

#endif
