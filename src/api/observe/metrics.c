/* GET /metrics */
#include "api/observe/metrics.h"

#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/observe/metrics_snapshot.h"
#include "api/reply/response_cache.h"
#include "api/request/media.h"
#include "api/route.h"
#include "base/clock.h"
#include "base/thread.h"

struct gb_metrics_text {
    char *s; /* NULL: none yet */
    size_t n;
    uint64_t built_ns;
};

struct gb_metrics {
    pthread_mutex_t lock; /* held for a look and a copy, never while a text is written */
    struct gb_metrics_text text[GB_EXPOSITIONS];
};

struct gb_metrics *gb_metrics_new(void) {
    struct gb_metrics *metrics = calloc(1, sizeof(*metrics));

    if (metrics)
        gb_mutex_init(&metrics->lock);
    return metrics;
}

void gb_metrics_free(struct gb_metrics *metrics) {
    int i;

    if (!metrics)
        return;
    for (i = 0; i < GB_EXPOSITIONS; i++)
        free(metrics->text[i].s);
    pthread_mutex_destroy(&metrics->lock);
    free(metrics);
}

/* Returns 1 with a copy of a text that is young enough, 0 when there is none, or -1 when memory is exhausted. */
static int look(struct gb_metrics *metrics, enum gb_exposition form, uint64_t now_ns, char **ret, size_t *ret_n) {
    struct gb_metrics_text *text = &metrics->text[form];
    int r = 0;

    pthread_mutex_lock(&metrics->lock);
    if (text->s && now_ns < text->built_ns + GB_RESPONSE_CACHE_AGE_NS) {
        *ret = malloc(text->n);
        *ret_n = text->n;
        r = *ret ? 1 : -1;
        if (*ret)
            memcpy(*ret, text->s, text->n);
    }
    pthread_mutex_unlock(&metrics->lock);
    return r;
}

/* Keeps a copy for the next readers. Without memory for it they build their own. */
static void keep(struct gb_metrics *metrics, enum gb_exposition form, uint64_t now_ns, const char *s, size_t n) {
    struct gb_metrics_text *text = &metrics->text[form];
    char *copy = malloc(n);
    char *old = copy;

    if (!copy)
        return;
    memcpy(copy, s, n);
    pthread_mutex_lock(&metrics->lock);
    if (!text->s || now_ns > text->built_ns) {
        old = text->s;
        *text = (struct gb_metrics_text){.s = copy, .n = n, .built_ns = now_ns};
    }
    pthread_mutex_unlock(&metrics->lock);
    free(old);
}

static int no_memory(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_SATURATED, "no memory for the reply; try again later");
}

static int build(struct gb_http_request *request, enum gb_exposition form, char **ret, size_t *ret_n,
                 struct gb_error *err) {
    struct gb_http_server *server = gb_http_server_of(request);
    struct gb_metrics_snapshot snapshot;
    int r;

    if (gb_metrics_snapshot_read(&snapshot, gb_api_of(request), server, err) < 0)
        return -1;
    r = gb_metrics_write(form, &snapshot, server, ret, ret_n);
    gb_metrics_snapshot_done(&snapshot);
    return r < 0 ? no_memory(err) : 0;
}

enum gb_step gb_api_metrics(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    bool open = gb_media_prefers(gb_http_header(request, "Accept"), "application/openmetrics-text", "text/plain");
    enum gb_exposition form = open ? GB_EXPOSITION_OPENMETRICS : GB_EXPOSITION_TEXT;
    struct gb_metrics *metrics = gb_api_of(request)->metrics;
    uint64_t now_ns = gb_clock_ns();
    char *text = NULL;
    size_t n = 0;
    int r = look(metrics, form, now_ns, &text, &n);

    if (r < 0) {
        no_memory(err);
        return GB_STEP_ERROR;
    }
    if (r == 0) {
        if (build(request, form, &text, &n, err) < 0)
            return GB_STEP_ERROR;
        keep(metrics, form, now_ns, text, n);
    }
    gb_http_response_take(response, text, n);
    response->is_vital = true;
    if (gb_http_response_header(response, err, "Content-Type", "%s", gb_exposition_type(form)) < 0 ||
        gb_http_response_header(response, err, "Cache-Control", "no-store") < 0 ||
        gb_http_response_header(response, err, "Vary", "Accept") < 0)
        return GB_STEP_ERROR;
    return GB_STEP_REPLY;
}
