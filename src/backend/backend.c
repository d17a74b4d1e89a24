/* The list of backends, and how a specification names one: "auto", or a word of backends.def with its arguments. The
 * daemon and the fault decorator open a backend here. */
#include "backend/backend.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend/common.h"

#define GB_BACKEND(name, open)                                                                                         \
    int open(const char *args, struct gb_backend **ret, char *ret_note, struct gb_error *err);
#define GB_BACKEND_PROBE(main) int main(int argc, char **argv);
#define GB_BACKEND_PROBER(main, start)                                                                                 \
    GB_BACKEND_PROBE(main)                                                                                             \
    int start(struct gb_error *err);
#include "backend/backends.def"
#undef GB_BACKEND
#undef GB_BACKEND_PROBE
#undef GB_BACKEND_PROBER

#define PERMITTED "auto, cuda, host[:KEY=VALUE,...], host:discrete[,KEY=VALUE...], fault:RULE[,RULE...]:SPEC"

struct entry {
    const char *name;
    int (*open)(const char *args, struct gb_backend **ret, char *ret_note, struct gb_error *err);
};

static const struct entry entries[] = {
#define GB_BACKEND(name, open) {#name, open},
#include "backend/backends.def"
#undef GB_BACKEND
};

static const struct entry *entry_of(const char *name, size_t len) {
    size_t i;

    for (i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        if (strlen(entries[i].name) == len && memcmp(entries[i].name, name, len) == 0)
            return &entries[i];
    }
    return NULL;
}

static int open_cuda(const char *args, struct gb_backend **ret, char *ret_note, struct gb_error *err) {
    const struct entry *cuda = entry_of("cuda", 4);

    if (!cuda)
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "this gpubufd was built without CUDA");
    return cuda->open(args, ret, ret_note, err);
}

static int open_auto(struct gb_backend **ret, char *ret_note, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    char note[GB_BACKEND_NOTE_SIZE];

    if (open_cuda("", ret, ret_note, &why) == 0)
        return 0;
    if (entry_of("host", 4)->open("", ret, note, err) < 0)
        return -1;
    snprintf(ret_note, GB_BACKEND_NOTE_SIZE, "auto chose host, not cuda: %.200s", why.detail);
    return 0;
}

static size_t word_length(const char *spec) {
    return strcspn(spec, ":");
}

static bool is_cuda(const char *spec) {
    return word_length(spec) == 4 && memcmp(spec, "cuda", 4) == 0;
}

int gb_backend_check(const char *spec, struct gb_error *err) {
    if (strcmp(spec, "auto") == 0 || is_cuda(spec) || entry_of(spec, word_length(spec)))
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "unknown --backend '%.60s'; permitted: " PERMITTED, spec);
}

int gb_backend_open(const char *spec, struct gb_backend **ret, char *ret_note, struct gb_error *err) {
    const char *args = spec + word_length(spec) + (spec[word_length(spec)] == ':');

    if (gb_backend_check(spec, err) < 0)
        return -1;
    if (strcmp(spec, "auto") == 0)
        return open_auto(ret, ret_note, err);
    if (is_cuda(spec))
        return open_cuda(args, ret, ret_note, err);
    return entry_of(spec, word_length(spec))->open(args, ret, ret_note, err);
}

void gb_backend_close(struct gb_backend *be) {
    if (be)
        be->ops->close(be);
}

int gb_backend_probe(int argc, char **argv) {
    int status = -1;

#define GB_BACKEND(name, open)
#define GB_BACKEND_PROBE(main)                                                                                         \
    if (status < 0)                                                                                                    \
        status = main(argc, argv);
#define GB_BACKEND_PROBER(main, start) GB_BACKEND_PROBE(main)
#include "backend/backends.def"
#undef GB_BACKEND
#undef GB_BACKEND_PROBE
#undef GB_BACKEND_PROBER
    (void)argc;
    (void)argv;
    return status;
}

int gb_backend_prober_start(struct gb_error *err) {
    int rc = 0;

#define GB_BACKEND(name, open)
#define GB_BACKEND_PROBE(main)
#define GB_BACKEND_PROBER(main, start)                                                                                 \
    if (rc == 0)                                                                                                       \
        rc = start(err);
#include "backend/backends.def"
#undef GB_BACKEND
#undef GB_BACKEND_PROBE
#undef GB_BACKEND_PROBER
    (void)err;
    return rc;
}

int gb_backend_lacks_kind(const struct gb_backend *be, enum gb_kind kind, struct gb_error *err, const char *fmt, ...) {
    char text[sizeof(err->detail)];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return gb_native_refuse(err, be->domain, GB_NATIVE_NOT_SUPPORTED, gb_native_kind_call(kind), "%s", text);
}
