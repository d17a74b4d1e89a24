/* The audit, as the daemon's options have it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/state_dir.h"

#define DAY_US (86400 * 1000000LL)
#define LOG_NS (60 * GB_NS_PER_S)

enum gb_audit_mode gb_daemon_audit_mode(const struct gb_options *options) {
    static const char *const words[] = {
        [GB_AUDIT_AUTO] = "auto", [GB_AUDIT_OFF] = "off", [GB_AUDIT_CHANGES] = "changes", [GB_AUDIT_ALL] = "all"};
    int mode = GB_AUDIT_ALL;

    while (mode > GB_AUDIT_AUTO && strcmp(options->audit, words[mode]) != 0)
        mode--;
    return (enum gb_audit_mode)mode;
}

int64_t gb_daemon_audit_age_us(const struct gb_options *options) {
    return options->audit_days <= (uint64_t)(INT64_MAX / DAY_US) ? (int64_t)options->audit_days * DAY_US : 0;
}

void gb_daemon_check_audit(struct gb_daemon *daemon) {
    struct gb_audit_numbers numbers;
    uint64_t now_ns = gb_clock_ns();

    if (daemon->audit_log_ns != 0 && now_ns - daemon->audit_log_ns < LOG_NS)
        return;
    gb_audit_numbers(daemon->core, &numbers);
    if (numbers.file_failures == daemon->audit_failures)
        return;
    gb_log(&daemon->log, GB_LOG_ERROR, "audit", "%llu records are not in %s, %llu in all: %s",
           (unsigned long long)(numbers.file_failures - daemon->audit_failures), daemon->options.audit_file,
           (unsigned long long)numbers.file_failures, numbers.file_error.detail);
    daemon->audit_failures = numbers.file_failures;
    daemon->audit_log_ns = now_ns;
}

void gb_daemon_audit_token(const struct gb_options *options, struct gb_token_store *tokens, enum gb_audit_event event,
                           const char *name, const char *session) {
    char address[32];
    const struct gb_audit_rec rec = {.at_us = gb_wall_us(),
                                     .event = event,
                                     .text = {[GB_AUDIT_ADDRESS] = address,
                                              [GB_AUDIT_SESSION] = session && session[0] ? session : NULL,
                                              [GB_AUDIT_OBJECT] = name}};
    struct gb_error err = GB_ERROR_INIT;
    char *state_dir;

    if (gb_daemon_audit_mode(options) == GB_AUDIT_OFF)
        return;
    snprintf(address, sizeof address, "unix:%u", (unsigned)getuid());
    if (gb_token_audit(tokens, &rec, &err) < 0)
        fprintf(stderr, "gpubufd: the audit does not have this: %s\n", err.detail);
    err = GB_ERROR_INIT;
    if (options->audit_file[0] == '\0')
        return;
    state_dir = gb_state_dir_find(options->state_dir, &err);
    if (!state_dir || gb_audit_append(options->audit_file, state_dir, &rec, &err) < 0)
        fprintf(stderr, "gpubufd: %s does not have this: %s\n", options->audit_file, err.detail);
    free(state_dir);
}
