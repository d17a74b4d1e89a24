/* The header Authorization, and lists of scopes. One of the two secrets in force opens what its scope says, and no
 * other text opens anything. A list of scopes that was parsed is written and parsed again. */
#include <string.h>
#include <strings.h>

#include "api/auth.h"
#include "api/context.h"
#include "base/hash.h"
#include "core/runtime/runtime.h"
#include "fuzz.h"

const char *const gb_fuzz_seeds[] = {
    "Bearer gpb_read",
    "bearer   gpb_admin",
    "Bearer gpb_read ",
    "Basic Z3BiOnJlYWQ=",
    "read,map-write,admin",
    "Bearer gpb_admin\nBearer gpb_admin",
    NULL,
};

static const char *const secrets[] = {"gpb_read", "gpb_admin"};
static struct gb_core core;
static struct gb_api api = {.core = &core};

static void start(void) {
    struct gb_token_rec recs[2] = {{.id = 1, .name = {"r"}, .scopes = 1u << GB_SCOPE_READ, .session = "mine"},
                                   {.id = 2, .name = {"a"}, .scopes = 1u << GB_SCOPE_ADMIN}};
    unsigned i;

    core.tokens = gb_tokens_new();
    FUZZ_ASSERT(core.tokens);
    for (i = 0; i < 2; i++)
        FUZZ_ASSERT(gb_sha256_hex(secrets[i], strlen(secrets[i]), recs[i].sha256_hex, NULL) == 0);
    FUZZ_ASSERT(gb_tokens_set(&core, recs, 2, NULL) == 0);
}

/* The id of the token that the text stands for, or 0. */
static int64_t id_of(const char *text) {
    int64_t i;

    if (strncasecmp(text, "Bearer ", 7) != 0)
        return 0;
    for (text += 7; *text == ' '; text++)
        ;
    for (i = 0; i < 2; i++)
        if (strcmp(text, secrets[i]) == 0)
            return i + 1;
    return 0;
}

static void check_header(struct gb_http_request *request, int64_t want) {
    static const char *const sessions[] = {"", "mine", "other"};
    struct gb_error err = GB_ERROR_INIT;
    enum gb_scope scope;
    int64_t id = 0;
    unsigned i;

    if (gb_api_bearer(request, &id, &err) < 0) {
        FUZZ_ASSERT(want == 0 && gb_code_status(err.code) == (request->headers > 1 ? 400 : 401));
        FUZZ_ASSERT_SAYS(err);
    } else {
        FUZZ_ASSERT(want > 0 && id == want);
    }
    for (scope = 0; scope < GB_SCOPE_COUNT; scope++) {
        for (i = 0; i < 3; i++) {
            bool good = want == 2 || (want == 1 && scope <= GB_SCOPE_READ && i == 1);

            err = GB_ERROR_INIT;
            FUZZ_ASSERT((gb_api_permit(request, scope, sessions[i], &err) == 0) == good);
            FUZZ_ASSERT(good || err.detail[0] != '\0');
        }
    }
}

static void check_scopes(const char *text) {
    struct gb_error err = GB_ERROR_INIT;
    char written[GB_SCOPES_SIZE];
    unsigned scopes = 0;
    unsigned again = 0;

    if (gb_scopes_parse(text, strlen(text), &scopes, &err) < 0) {
        FUZZ_ASSERT_SAYS(err);
        return;
    }
    FUZZ_ASSERT(scopes > 0 && scopes < 1u << GB_SCOPE_COUNT);
    gb_scopes_text(scopes, written);
    FUZZ_ASSERT(gb_scopes_parse(written, strlen(written), &again, NULL) == 0 && again == scopes);
}

/* A line break divides two headers, as none can have one. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct gb_http_request *request = calloc(1, sizeof(*request));
    char *text = malloc(size + 1);
    char *second;

    if (!core.tokens)
        start();
    FUZZ_ASSERT(request && text);
    memcpy(text, data, size);
    text[size] = '\0';
    second = strchr(text, '\n');
    if (second)
        *second++ = '\0';
    request->app = &api;
    request->headers = second ? 2 : 1;
    request->header[0].name = (struct gb_http_text){"Authorization", 13};
    request->header[0].value = (struct gb_http_text){text, strlen(text)};
    request->header[1].name = (struct gb_http_text){"authorization", 13};
    request->header[1].value = (struct gb_http_text){second, second ? strlen(second) : 0};
    check_header(request, second ? 0 : id_of(text));
    check_scopes(text);
    free(text);
    free(request);
    return 0;
}

void gb_fuzz_end(void) {
    gb_tokens_free(core.tokens);
    core.tokens = NULL;
}
