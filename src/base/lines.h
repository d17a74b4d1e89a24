/* Lines of text on their way to a file, a descriptor or the journal. Any thread puts lines into a bounded queue, and a
 * thread of the queue's own writes them: a slow disk, or a reader that does not read, delays that thread alone. */
#ifndef GB_BASE_LINES_H
#define GB_BASE_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Bytes of a line with its newline; longer ones are lost. A pipe takes that many at once, so that lines of several
 * programs do not mix. */
#define GB_LINE_MAX 4096
#define GB_LINES_JOURNAL "/run/systemd/journal/socket"

struct gb_lines;

/* Where lines go: one of the three. Texts are copied. */
struct gb_lines_to {
    const char *file;    /* appended to; made with mode 0640 */
    const char *journal; /* a socket of journald's native protocol */
    int fd;              /* if neither is given; borrowed */
    /* Writes a line with its newline into out, that reports `lost` lines, and returns its length. Called on the
     * queue's thread. NULL: gaps are not reported. */
    size_t (*gap)(char *out, size_t size, uint64_t lost);
};

/* Opens the target and starts the thread. Returns 0, or -1 with INTERNAL and what hinders it. */
int gb_lines_new(const struct gb_lines_to *to, struct gb_lines **ret, struct gb_error *err);

/* Writes what waits, for a second at most if the reader does not read, and ends the thread. NULL is accepted. */
void gb_lines_free(struct gb_lines *lines);

/* Puts a line of n bytes, whose last one is its only newline. priority: of syslog, 0 to 7; it is sent to the journal
 * alone. If there is no room for the line, it is counted as lost. [any thread, never blocks] */
void gb_lines_put(struct gb_lines *lines, int priority, const char *line, size_t n);

/* Opens the file again, which logrotate has renamed. Lines that were put before go into the old one. [any thread, never
 * blocks] */
void gb_lines_reopen(struct gb_lines *lines);

/* Returns the lines that were lost since the start, and in *ret_error the reason of the latest. [any thread] */
uint64_t gb_lines_lost(struct gb_lines *lines, struct gb_error *ret_error);

/* Whether systemd has connected that descriptor to the journal, as JOURNAL_STREAM says: lines may begin with <N>. */
bool gb_lines_is_journal(int fd);

#endif
