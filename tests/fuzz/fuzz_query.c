/* The target of a request, its query, and the words that handlers read from it. A query that was parsed is written with
 * every byte encoded and parsed again. Whatever is refused has a document that is JSON. */
#include <jansson.h>
#include <string.h>
#include <time.h>

#include "api/api.h"
#include "api/request/query.h"
#include "core/core.h"
#include "fuzz.h"
#include "http/message/request.h"
#include "http/message/response.h"
#include "http/message/router.h"

#define TARGET_MAX 8000
#define NOW_US 1767323045000000

const unsigned gb_fuzz_mutants = 1000;
const char *const gb_fuzz_seeds[] = {
    "/v1/sessions/default/buffers/x/data?slice=0%3a16&offset=1",
    "/v1/sessions?limit=10&cursor=77",
    "/v1/sessions/%64efault/buffers/a%2Fb?x=%00&y&z=",
    "/v1/allocations?since=2026-01-02T03:04:05.678+01:00&until=-3600",
    "/metrics?a=true&b=no&c=18446744073709551616",
    "/?t=text/html;q=0.5,application/x-npy,*/*;q=0.1",
    NULL,
};

static const struct gb_http_route routes[] = {
#define GB_ROUTE(method, path, name, body, access, target, reach, key, operation, query)                               \
    {GB_HTTP_##method, path, NULL, GB_BODY_##body, NULL, query},
#include "api/routes.def"
#undef GB_ROUTE
};
static struct gb_router router;

/* As a client gets it. */
static void check_problem(const struct gb_http_request *request, const struct gb_error *err) {
    struct gb_json_writer out = {0};
    json_t *read;

    FUZZ_ASSERT_SAYS(*err);
    gb_problem_open(&out, err, NULL, request->target.s, "0123456789abcdef");
    gb_json_close(&out, '}');
    read = json_loadb(out.s, out.used, JSON_REJECT_DUPLICATES, NULL);
    FUZZ_ASSERT(json_is_object(read));
    json_decref(read);
    gb_json_done(&out);
}

static size_t encode(char *out, const struct gb_http_text *text) {
    static const char digits[] = "0123456789abcdef";
    size_t i;

    for (i = 0; i < text->len; i++) {
        *out++ = '%';
        *out++ = digits[(unsigned char)text->s[i] >> 4];
        *out++ = digits[text->s[i] & 15];
    }
    return text->len * 3;
}

static void check_again(const struct gb_http_request *request) {
    struct gb_http_request *again = calloc(1, sizeof(*again));
    struct gb_text_arena texts;
    struct gb_http_text path;
    char *out = malloc(TARGET_MAX * 4);
    size_t n = 0;
    unsigned i;

    FUZZ_ASSERT(again && out);
    n += (size_t)sprintf(out, "/?");
    for (i = 0; i < request->queries; i++) {
        n += encode(out + n, &request->query[i].name);
        out[n++] = '=';
        n += encode(out + n, &request->query[i].value);
        out[n++] = '&';
    }
    out[n] = '\0';
    again->target = (struct gb_http_text){out, n};
    gb_text_arena_init(&texts, 65536);
    if (n <= TARGET_MAX) {
        FUZZ_ASSERT(gb_request_parse_target(again, &texts, &path, NULL) == 0 && again->queries == request->queries);
        for (i = 0; i < request->queries; i++) {
            FUZZ_ASSERT(again->query[i].value.len == request->query[i].value.len);
            FUZZ_ASSERT(memcmp(again->query[i].value.s, request->query[i].value.s, again->query[i].value.len) == 0);
            FUZZ_ASSERT(gb_http_query(again, request->query[i].name.s) == &again->query[i].value);
        }
    }
    gb_text_arena_done(&texts);
    free(out);
    free(again);
}

static void read_value(const struct gb_http_request *request, const char *name, const char *value) {
    struct gb_error err[9] = {GB_ERROR_INIT};
    enum gb_form form = GB_FORM_COUNT;
    char text[GB_CURSOR_SIZE];
    struct gb_name word;
    unsigned limit;
    uint64_t number;
    int64_t time;
    int r[9];
    bool flag;
    unsigned i;

    r[0] = gb_query_flag(request, name, &flag, &err[0]);
    r[1] = gb_query_u64(request, name, &number, &err[1]);
    FUZZ_ASSERT(r[1] < 0 || number <= INT64_MAX);
    r[2] = gb_query_name(request, name, &word, &err[2]);
    r[3] = gb_query_time(request, name, NOW_US, &time, &err[3]);
    r[4] = gb_cursor_parse(value, strlen(value), &time, &err[4]);
    if (r[4] == 0)
        FUZZ_ASSERT(strlen(gb_cursor_text(time, text)) > 0 && strtoll(text, NULL, 10) == time && time >= 0);
    r[5] = gb_limit_parse(value, strlen(value), &limit, &err[5]);
    FUZZ_ASSERT(r[5] < 0 || (limit >= 1 && limit <= GB_PAGE_LIMIT_MAX));
    r[6] = gb_media_json(value, &err[6]);
    r[7] = gb_media_tensor(value, &form, &err[7]);
    FUZZ_ASSERT(r[7] < 0 || form < GB_FORM_COUNT);
    r[8] = gb_media_accept(value, 5, &form, &err[8]);
    FUZZ_ASSERT(r[8] < 0 || form == GB_FORM_RAW || form == GB_FORM_SAFETENSORS);
    for (i = 0; i < 9; i++)
        if (r[i] < 0)
            check_problem(request, &err[i]);
    (void)gb_media_prefers(value, "text/html", "application/json");
}

static void route(struct gb_http_request *request, struct gb_text_arena *texts, struct gb_http_text path) {
    struct gb_error err = GB_ERROR_INIT;
    char allow[GB_ROUTER_ALLOW_SIZE] = "x";
    unsigned i;

    if (gb_router_match(&router, request, texts, path, allow, &err) < 0) {
        FUZZ_ASSERT((allow[0] != '\0') == (err.code == GB_ERR_METHOD_NOT_ALLOWED));
        check_problem(request, &err);
        return;
    }
    for (i = 0; i < GB_HTTP_PARAMS_MAX && request->param[i].s; i++)
        FUZZ_ASSERT(request->param[i].s[request->param[i].len] == '\0');
    if (gb_router_check_query(request, &err) < 0)
        check_problem(request, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct gb_http_request *request = calloc(1, sizeof(*request));
    struct gb_error err = GB_ERROR_INIT;
    struct gb_text_arena texts;
    struct gb_http_text path;
    char *target = malloc(size + 1);
    unsigned i;

    FUZZ_ASSERT(request && target);
    FUZZ_ASSERT(router.list || gb_router_init(&router, routes, sizeof(routes) / sizeof(routes[0]), NULL) == 0);
    memcpy(target, data, size);
    target[size] = '\0';
    request->target = (struct gb_http_text){target, strlen(target)};
    request->method = (enum gb_http_method)(size % (GB_HTTP_METHOD_COUNT + 1));
    gb_text_arena_init(&texts, 33 * 1024);
    if (gb_request_parse_target(request, &texts, &path, &err) < 0) {
        check_problem(request, &err);
    } else {
        FUZZ_ASSERT(path.s == target && path.len >= 1 && path.len <= request->target.len);
        check_again(request);
        for (i = 0; i < request->queries; i++)
            read_value(request, request->query[i].name.s, request->query[i].value.s);
        route(request, &texts, path);
    }
    gb_text_arena_done(&texts);
    free(target);
    free(request);
    return 0;
}
