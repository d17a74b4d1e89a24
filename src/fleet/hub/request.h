/* A hub and its requests, as the files of this folder share them. All functions run on the hub's thread. */
#ifndef GB_FLEET_HUB_REQUEST_H
#define GB_FLEET_HUB_REQUEST_H

#include <jansson.h>
#include <pthread.h>

#include "base/map.h"
#include "fleet/fleet.h"
#include "fleet/hub/check.h"
#include "fleet/hub/hub.h"

#define GB_HUB_RELAYS_MAX 48     /* relayed requests at a time: more would only wait at the directory */
#define GB_HUB_DELAY_MS 2000     /* a request delayed for so long is refused: its node repeats it by then */
#define GB_HUB_LEASES_MAX 100000 /* whose nodes are known here */

struct gb_hub_list {
    struct gb_hub_item *first;
    struct gb_hub_item **end;
};
void gb_hub_list_init(struct gb_hub_list *list);
void gb_hub_list_add(struct gb_hub_list *list, struct gb_hub_item *item);
struct gb_hub_item *gb_hub_list_take(struct gb_hub_list *list);

/* Requests that wait to be relayed together. */
struct gb_hub_batch {
    struct gb_hub_list items;
    size_t size;      /* sum of their sizes */
    uint64_t sent_ms; /* when some were relayed last */
};

/* A request. */
struct gb_hub_item {
    struct gb_hub_item *next;
    struct gb_hub *hub;
    struct gb_hub_ask *ask; /* by the lock; NULL: cancelled */
    struct gb_name node;
    struct gb_hub_checked is;
    json_t *body;
    char *text;
    struct gb_error error;
    int status;
    char *answer;
    uint64_t until_ms;           /* when a wait ends */
    uint64_t since;              /* the first poll whose orders it may get */
    struct gb_hub_list together; /* the requests that this one is relayed for */
    struct gb_fleet_relay relay;
    char *delayed; /* the text of a request that waits to be relayed */
    uint64_t delayed_ms;
    void (*relayed)(struct gb_hub_item *item); /* on the hub's thread; relay.ask.error is set */
};
/* The node that a lease belongs to. */
struct gb_hub_lease {
    char key[24];
    struct gb_name node;
};

struct gb_hub {
    struct gb_fleet *fleet;
    char *name;
    pthread_t thread;

    /* The thread's. */
    size_t relays;              /* relayed and not answered yet */
    struct gb_hub_list delayed; /* wait until fewer are relayed */
    struct gb_map leases;       /* by key: struct gb_hub_lease */
    struct gb_hub_batch reads;
    struct gb_hub_batch renewals;
    struct gb_hub_list waits;
    size_t waiting;
    uint64_t wait_due_ms;     /* when a wait ends, or orders are polled */
    struct gb_hub_item *poll; /* the open poll of orders, or NULL */
    uint64_t polls;           /* polls begun */
    uint64_t polled_ms;
    json_t *header; /* of the directory's last answer, or NULL */

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

/* The time of gb_clock_ns, in milliseconds. */
uint64_t gb_hub_now_ms(void);
/* A new item, or NULL. */
struct gb_hub_item *gb_hub_item_new(struct gb_hub *hub);
void gb_hub_item_free(struct gb_hub_item *item);
/* Relays text to the directory. `relayed` runs when the answer has come. */
void gb_hub_relay(struct gb_hub_item *item, enum gb_fleet_relay_op op, const char *text, bool reads, bool serializable,
                  void (*relayed)(struct gb_hub_item *item));
/* Relays delayed requests, as far as GB_HUB_RELAYS_MAX permits. */
void gb_hub_send_delayed(struct gb_hub *hub);
/* Answers with item->status and item->answer, or with item->error, and frees the item. */
void gb_hub_answer(struct gb_hub_item *item);
/* Answers with what the directory has answered. */
void gb_hub_answer_relayed(struct gb_hub_item *item);
void gb_hub_fail(struct gb_hub_item *item, const struct gb_error *err);
/* Relays a request unchanged. */
void gb_hub_pass(struct gb_hub_item *item);

/* Queues a read to be relayed together with others. */
void gb_hub_gather(struct gb_hub_item *item);
/* Relays the reads that are due. Returns when the next ones are due, or UINT64_MAX. */
uint64_t gb_hub_gather_run(struct gb_hub *hub, uint64_t now_ms);

/* The same for renewals of leases that belong to their nodes. */
void gb_hub_renew(struct gb_hub_item *item);
uint64_t gb_hub_renew_run(struct gb_hub *hub, uint64_t now_ms);

#endif
