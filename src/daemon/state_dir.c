/* The state directory: which folder it is, and what lies in it. It is made with its parents, for its owner alone. */
#include "daemon/state_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

/* NULL: it is not set, or *err says why it cannot be meant. */
static const char *environment(const char *name, struct gb_error *err) {
    const char *value = getenv(name);
    const char *fault = value ? gb_conf_path(value, strlen(value)) : NULL;

    if (fault)
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s: %.64s %s", name, value, fault);
    return !fault && value && value[0] != '\0' ? value : NULL;
}

static char *choose(const char *given, struct gb_error *err) {
    const char *base;
    char *path = NULL;

    if (given[0] != '\0')
        return strdup(given);
    base = environment("STATE_DIRECTORY", err);
    if (base)
        return strndup(base, strcspn(base, ":")); /* several folders are separated by colons */
    if (geteuid() == 0)
        return strdup("/var/lib/gpubufd");
    base = environment("XDG_STATE_HOME", err);
    if (base)
        return asprintf(&path, "%s/gpubufd", base) < 0 ? NULL : path;
    base = environment("HOME", err);
    return asprintf(&path, "%s/.local/state/gpubufd", base ? base : "") < 0 ? NULL : path;
}

int gb_folders_make(char *path, mode_t mode) {
    char *p = path + 1;

    for (;;) {
        char *slash = strchr(p, '/');
        int r;

        if (slash)
            *slash = '\0';
        r = mkdir(path, mode);
        if (r != 0 && errno == EEXIST)
            r = 0;
        if (slash)
            *slash = '/';
        if (r != 0 || !slash)
            return r;
        p = slash + 1;
    }
}

char *gb_state_dir(const char *given, struct gb_error *err) {
    char *path = choose(given, err);
    char *real;

    if (!path || path[0] == '\0' || err->code != GB_OK) {
        gb_error_set(err, GB_ERR_INTERNAL, "no state directory: name one with --state-dir DIR");
        free(path);
        return NULL;
    }
    if (gb_folders_make(path, 0700) != 0 || access(path, W_OK | X_OK) != 0) {
        gb_error_errno(err, GB_ERR_INTERNAL, "mkdir", errno);
        snprintf(err->detail, sizeof(err->detail),
                 "the state directory %.128s cannot be used: %s; name another with --state-dir DIR", path,
                 strerror(errno));
        free(path);
        return NULL;
    }
    real = realpath(path, NULL);
    if (!real)
        gb_error_errno(err, GB_ERR_INTERNAL, "realpath", errno);
    free(path);
    return real;
}

char *gb_state_dir_find(const char *given, struct gb_error *err) {
    char *path = choose(given, err);
    char *real = path && path[0] != '\0' && err->code == GB_OK ? realpath(path, NULL) : NULL;

    if (!real)
        gb_error_set(
            err, GB_ERR_INTERNAL,
            "there is no state directory %.128s: name the daemon's with --state-dir DIR (\"token add\" and the "
            "daemon make one)",
            path ? path : "");
    free(path);
    return real;
}

char *gb_state_path(const char *dir, const char *name) {
    char *path = NULL;

    return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}
