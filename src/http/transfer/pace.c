#include "http/transfer/pace.h"

#include "base/clock.h"
#include "http/exchange/client.h"
#include "http/exchange/step.h"

/* The least that is worth a visit, where the rate permits more within a tick. */
#define LEAST_BYTES 4096u

static void begin(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    if (t->paced)
        return;
    t->paced = true;
    atomic_fetch_add(&t->ex->client->pausing, 1);
    atomic_fetch_add(&loop->server->limits.pausing, 1);
    gb_limits_note(&loop->server->limits, GB_HTTP_LIMIT_BYTES);
}

void gb_pace_end(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    if (!t->paced)
        return;
    t->paced = false;
    atomic_fetch_sub(&t->ex->client->pausing, 1);
    atomic_fetch_sub(&loop->server->limits.pausing, 1);
}

/* Nothing is held meanwhile that other clients may need. */
static void let_go(struct gb_http_transfer *t) {
    struct gb_exchange *ex = t->ex;

    if (ex->phase == GB_PHASE_BODY && ex->req.sink) {
        gb_exchange_room(ex, false);
        if (ex->req.sink->pause)
            ex->req.sink->pause(ex->req.sink, true);
    }
    if (t->state == GB_HTTP_TRANSFER_SOURCE && ex->resp.source && ex->resp.source->pause)
        ex->resp.source->pause(ex->resp.source);
}

size_t gb_pace_bounded(struct gb_transfer_loop *loop, struct gb_http_transfer *t, size_t n) {
    struct gb_client *client = t->ex->client;
    struct gb_bucket_rate rate = gb_client_bytes(client);
    unsigned waiting = atomic_load_explicit(&client->pausing, memory_order_relaxed);
    uint64_t left;
    uint64_t share;

    if (rate.per_s == 0)
        return n;
    left = gb_bucket_left(&client->bytes, rate, gb_clock_ns());
    share = waiting > 1 ? left / waiting : left;
    if (share < LEAST_BYTES)
        share = left < LEAST_BYTES ? left : LEAST_BYTES;
    if (share > 0) {
        gb_pace_end(loop, t);
        return share < n ? (size_t)share : n;
    }
    begin(loop, t);
    let_go(t);
    gb_http_transfer_arm(loop, t, 0);
    return 0;
}

void gb_pace_paid(struct gb_http_transfer *t, size_t n) {
    struct gb_bucket_rate rate = gb_client_bytes(t->ex->client);

    if (rate.per_s == 0)
        return;
    gb_bucket_charge(&t->ex->client->bytes, rate, n, gb_clock_ns());
    t->ex->paid_bytes += n;
}

void gb_pace_excuse(struct gb_http_transfer *t, uint64_t now_ns) {
    if (t->paced)
        gb_progress_excuse(&t->progress, now_ns);
}
