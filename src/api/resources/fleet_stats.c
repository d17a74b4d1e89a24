/* GET /v1/fleet/stats: numbers of all nodes, asked one by one, and their sums. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api/middleware/redirect.h"
#include "api/reply/reply_json.h"
#include "api/resources/fleet_ask.h"
#include "api/route.h"
#include "base/clock.h"
#include "base/container.h"

/* Nodes that are asked at a time. */
#define AT_ONCE 16

/* The numbers, and where GET /v1/stats has them. */
static const struct {
    const char *name;
    const char *group;
    const char *member;
} numbers[] = {
    {"sessions", "sessions", "count"},       {"buffers", "buffers", "count"},
    {"buffer_bytes", "buffers", "bytes"},    {"lost_buffers", "buffers", "lost"},
    {"stored_buffers", "buffers", "stored"}, {"pinned_bytes", "pinned", "bytes"},
    {"uploads", "running", "uploads"},       {"downloads", "running", "downloads"},
    {"writes", "running", "writes"},         {"leases", "sharing", "leases"},
    {"allocations", "allocations", "count"}, {"allocation_failures", "allocations", "failures"},
};
#define NUMBERS (sizeof(numbers) / sizeof(numbers[0]))

struct survey;

struct asked {
    struct gb_fleet_call call;
    struct survey *survey;
    bool begun;
    atomic_bool done;
    const char *missing; /* static: it is not asked, or its answer is none */
    uint64_t at_ns;      /* when its answer was read */
    uint64_t number[NUMBERS];
};

struct survey {
    struct gb_http_request *request;
    struct gb_fleet *fleet;
    struct gb_fleet_nodes nodes;
    struct asked *asked; /* by node */
    size_t next;
    size_t open;
    size_t left;
};

static void survey_free(void *state) {
    struct survey *survey = state;
    size_t i;

    for (i = 0; survey->asked && i < survey->nodes.count; i++) {
        if (survey->asked[i].begun)
            gb_fleet_leave(survey->fleet, &survey->asked[i].call.ask);
        free(survey->asked[i].call.answer);
    }
    free(survey->asked);
    free(survey->nodes.items);
    free(survey);
}

/* --- one node ----------------------------------------------------------------------------------------------------- */

static void called(struct gb_fleet_ask *ask) {
    struct asked *asked = gb_container_of(ask, struct asked, call.ask);

    atomic_store(&asked->done, true);
    gb_http_wake(asked->survey->request);
}

/* Sets missing where there is nothing to ask. */
static void ask_node(struct survey *survey, size_t i) {
    const struct gb_fleet_node *node = &survey->nodes.items[i];
    const char *base = gb_fleet_url_on(node, gb_redirect_network(survey->request));
    struct asked *asked = &survey->asked[i];
    char *url =
        base && node->alive ? gb_redirect_url(survey->request, base, &node->name, "GET", "/v1/stats", "") : NULL;

    asked->survey = survey;
    if (!url || strlen(url) >= sizeof(asked->call.url)) {
        asked->missing = !node->alive ? "not alive" : !base ? "no address in this network" : "no memory";
        free(url);
        survey->left--;
        return;
    }
    strcpy(asked->call.url, url);
    free(url);
    asked->call.method = "GET";
    asked->call.ask.done = called;
    asked->begun = true;
    survey->open++;
    gb_fleet_call(survey->fleet, &asked->call);
}

static void read_answer(struct asked *asked) {
    json_t *stats = asked->call.answer ? json_loadb(asked->call.answer, asked->call.bytes, 0, NULL) : NULL;
    size_t i;

    asked->at_ns = gb_clock_ns();
    if (asked->call.ask.error.code != GB_OK)
        asked->missing = "unreachable";
    else if (asked->call.status == 401 || asked->call.status == 403)
        asked->missing = "not permitted";
    else if (asked->call.status != 200 || !json_is_object(stats))
        asked->missing = "no valid answer";
    for (i = 0; i < NUMBERS && !asked->missing; i++) {
        json_int_t n = json_integer_value(json_object_get(json_object_get(stats, numbers[i].group), numbers[i].member));

        asked->number[i] = n > 0 ? (uint64_t)n : 0;
    }
    json_decref(stats);
    free(asked->call.answer);
    asked->call.answer = NULL;
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

static void render_numbers(struct gb_json_writer *out, const char *key, const uint64_t *number) {
    size_t i;

    gb_json_open(out, key, '{');
    for (i = 0; i < NUMBERS; i++)
        gb_json_put_u64(out, numbers[i].name, number[i]);
    gb_json_close(out, '}');
}

static void render_missing(struct gb_json_writer *out, const struct survey *survey) {
    size_t i;

    gb_json_open(out, "missing", '[');
    for (i = 0; i < survey->nodes.count; i++) {
        const char *why = survey->asked[i].missing;

        if (!why && survey->asked[i].at_ns > 0)
            continue;
        gb_json_open(out, NULL, '{');
        gb_json_put_string(out, "node", survey->nodes.items[i].name.s);
        gb_json_put_string(out, "why", why ? why : "no answer in time");
        gb_json_close(out, '}');
    }
    gb_json_close(out, ']');
}

static enum gb_step reply(struct survey *survey, struct gb_http_response *response, struct gb_error *err) {
    struct gb_json_writer out = {0};
    uint64_t sums[NUMBERS] = {0};
    uint64_t now_ns = gb_clock_ns();
    size_t i;
    size_t k;

    gb_json_open(&out, NULL, '{');
    gb_json_open(&out, "nodes", '[');
    for (i = 0; i < survey->nodes.count; i++) {
        const struct asked *asked = &survey->asked[i];

        if (asked->missing || asked->at_ns == 0)
            continue;
        for (k = 0; k < NUMBERS; k++)
            sums[k] += asked->number[k];
        gb_json_open(&out, NULL, '{');
        gb_json_put_string(&out, "node", survey->nodes.items[i].name.s);
        gb_json_put_u64(&out, "age_s", (now_ns - asked->at_ns) / GB_NS_PER_S);
        render_numbers(&out, "stats", asked->number);
        gb_json_close(&out, '}');
    }
    gb_json_close(&out, ']');
    render_missing(&out, survey);
    render_numbers(&out, "sums", sums);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct survey *survey = request->state;
    size_t i;

    for (i = 0; i < survey->next; i++) {
        struct asked *asked = &survey->asked[i];

        if (asked->at_ns > 0 || !asked->begun || !atomic_load(&asked->done))
            continue;
        read_answer(asked);
        survey->open--;
        survey->left--;
    }
    while (survey->next < survey->nodes.count && survey->open < AT_ONCE)
        ask_node(survey, survey->next++);
    return survey->left == 0 || request->timed_out ? reply(survey, response, err) : GB_STEP_WAIT;
}

static enum gb_step begin(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_asking *asking = request->state;
    struct survey *survey = calloc(1, sizeof(*survey));

    if (survey) {
        survey->nodes = asking->of.nodes;
        asking->of.nodes.items = NULL;
        survey->asked = calloc(survey->nodes.count + 1, sizeof(*survey->asked));
    }
    if (!survey || !survey->asked) {
        if (survey)
            survey_free(survey);
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return GB_STEP_ERROR;
    }
    survey->request = request;
    survey->fleet = asking->fleet;
    survey->left = survey->nodes.count;
    request->state_free(request->state);
    request->state = survey;
    request->state_free = survey_free;
    request->resume = resume;
    return resume(request, response, err);
}

enum gb_step gb_api_fleet_stats(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    return gb_ask_nodes(request, begin, response, err);
}
