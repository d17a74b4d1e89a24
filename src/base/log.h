/* The log: one line per event on standard error, as text or JSON. Only the daemon layer logs; library layers report
 * through struct gb_error. Thread-safe. */
#ifndef GB_BASE_LOG_H
#define GB_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

enum gb_log_level { GB_LOG_ERROR, GB_LOG_WARNING, GB_LOG_INFO, GB_LOG_DEBUG };

struct gb_lines;

struct gb_log {
    enum gb_log_level level;
    bool json;
    bool journal; /* lines begin with <N>, the priority that systemd's journal reads there */
    int fd;
    struct gb_lines *lines; /* where lines go instead, so that the caller never blocks; borrowed. NULL: to fd */
};

/* A member of a line beside its sentence: name=value in a text. */
struct gb_log_field {
    const char *name;
    const char *value; /* NULL: the field is left out */
};

/* Writes one line. `event` is a short stable word; fmt gives the sentence. Lines longer than 4 KiB are cut. Control
 * characters and bytes that are no UTF-8 are written as \xNN. */
void gb_log(const struct gb_log *log, enum gb_log_level level, const char *event, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The same with fields. Their values are cut to some 512 bytes each. */
void gb_log_fields(const struct gb_log *log, enum gb_log_level level, const char *event, const char *text,
                   const struct gb_log_field *fields, size_t count);

/* The priority of syslog. */
int gb_log_priority(enum gb_log_level level);

/* Parses "error", "warning", "info" or "debug". Returns 0 or -1. */
int gb_log_level_parse(const char *word, enum gb_log_level *ret_level);

#endif
