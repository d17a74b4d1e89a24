/* Requests of other nodes for the directory, which a hub has checked, passed on as they are. */
#include <stdlib.h>
#include <string.h>

#include "fleet/internal.h"

struct relaying {
    struct gb_job job;
    enum gb_fleet_relay_op op;
    bool reads;
    bool serializable;
    char *body;
    int status;
    char *answer;
    bool too_long;
};

static void give(struct gb_job *job, struct gb_fleet_ask *ask) {
    struct relaying *r = gb_container_of(job, struct relaying, job);
    struct gb_fleet_relay *to = gb_container_of(ask, struct gb_fleet_relay, ask);

    to->status = r->status;
    to->answer = r->answer;
    to->too_long = r->too_long;
    r->answer = NULL;
}

static void free_relaying(struct gb_job *job) {
    struct relaying *r = gb_container_of(job, struct relaying, job);

    free(r->body);
    free(r->answer);
    free(r->job.call.answer);
}

static void on_answer(struct gb_etcd_call *call) {
    struct relaying *r = gb_container_of((struct gb_job *)call->arg, struct relaying, job);

    r->job.error = call->error;
    r->status = call->status;
    r->too_long = call->ask.too_long;
    r->answer = call->answer;
    call->answer = NULL;
    gb_job_end(&r->job);
}

static void start(struct gb_job *job) {
    static const enum gb_etcd_kind kinds[] = {
        [GB_RELAY_TXN] = GB_ETCD_TXN,
        [GB_RELAY_GRANT] = GB_ETCD_GRANT,
        [GB_RELAY_KEEPALIVE] = GB_ETCD_KEEPALIVE,
        [GB_RELAY_TIMETOLIVE] = GB_ETCD_TIMETOLIVE,
        [GB_RELAY_REVOKE] = GB_ETCD_REVOKE,
    };
    struct relaying *r = gb_container_of(job, struct relaying, job);
    char *body = r->body;
    bool repeat = r->op == GB_RELAY_TXN ? r->reads : r->op != GB_RELAY_GRANT;

    r->body = NULL;
    job->call.raw = true;
    job->call.done = on_answer;
    gb_etcd_send(&job->fleet->etcd, &job->call, kinds[r->op], body, job->deadline_ms, repeat,
                 r->serializable ? GB_ETCD_MEMBER : GB_ETCD_MAJORITY);
}

void gb_fleet_relay(struct gb_fleet *fleet, struct gb_fleet_relay *relay) {
    struct relaying *r = gb_job_new(fleet, sizeof(*r), start);

    relay->status = 0;
    relay->answer = NULL;
    if (r) {
        r->op = relay->op;
        r->reads = relay->reads;
        r->serializable = relay->serializable;
        r->body = strdup(relay->body);
        r->job.give = give;
        r->job.free = free_relaying;
    }
    gb_job_ask(fleet, r ? &r->job : NULL, &relay->ask);
}
