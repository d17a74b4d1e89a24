/* A hub and its requests, as the files of this folder know them. On the thread of the hub. */
#ifndef GB_FLEET_HUB_REQUEST_H
#define GB_FLEET_HUB_REQUEST_H

#include <jansson.h>
#include <pthread.h>

#include "base/map.h"
#include "fleet/fleet.h"
#include "fleet/hub/check.h"
#include "fleet/hub/hub.h"

#define GB_HUB_RELAYS_MAX 48     /* requests with the directory at a time: more would only wait there */
#define GB_HUB_DELAY_MS 2000     /* one that has waited for so long is refused: its node asks again by then */
#define GB_HUB_LEASES_MAX 100000 /* that are known here */

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
    char *delayed; /* the text of one that waits to go on */
    uint64_t delayed_ms;
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
    size_t relays;              /* that have not been answered */
    struct gb_hub_list delayed; /* that wait until there are less */
    struct gb_map leases;       /* by key: struct gb_hub_lease */
    struct gb_hub_batch reads;
    struct gb_hub_batch renewals;
    struct gb_hub_list waits;
    size_t waiting;
    uint64_t wait_due_ms;     /* when one of them is to be answered, or orders are to be looked at */
    struct gb_hub_item *poll; /* at orders; NULL: none is open */
    uint64_t polls;           /* begun */
    uint64_t polled_ms;
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

/* The time of gb_clock_ns, in milliseconds. */
uint64_t gb_hub_now_ms(void);
/* An item of the hub's own, or NULL. */
struct gb_hub_item *gb_hub_item_new(struct gb_hub *hub);
void gb_hub_item_free(struct gb_hub_item *item);
/* Sends text on; relayed runs when there is an answer. */
void gb_hub_relay(struct gb_hub_item *item, enum gb_fleet_relay_op op, const char *text, bool reads, bool serializable,
                  void (*relayed)(struct gb_hub_item *item));
/* Sends those on that were held, as far as there is room. */
void gb_hub_send_delayed(struct gb_hub *hub);
/* Gives item->status and item->answer, or item->error, and frees the item. */
void gb_hub_answer(struct gb_hub_item *item);
/* The same with what the directory has answered. */
void gb_hub_answer_relayed(struct gb_hub_item *item);
void gb_hub_fail(struct gb_hub_item *item, const struct gb_error *err);
/* Sends a request on as it came. */
void gb_hub_pass(struct gb_hub_item *item);

void gb_hub_gather(struct gb_hub_item *item);
/* Sends what it is time for. Returns when the next is due; UINT64_MAX: nothing is. */
uint64_t gb_hub_gather_run(struct gb_hub *hub, uint64_t now_ms);

/* The same for a renewal of a lease that is the node's. */
void gb_hub_renew(struct gb_hub_item *item);
uint64_t gb_hub_renew_run(struct gb_hub *hub, uint64_t now_ms);

#endif
