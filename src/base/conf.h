/* Lines of a configuration file: "name = value", and # begins a comment; and values that a shell would change and
 * nothing else does. Pure. */
#ifndef GB_BASE_CONF_H
#define GB_BASE_CONF_H

#include <stdbool.h>
#include <stddef.h>

/* Cuts the comment and the space around a line, in place. Returns the first character that counts; "" if none does. A #
 * within a word begins no comment. */
char *gb_conf_trim(char *line);

/* Cuts a trimmed line in two, in place: *ret_name and *ret_value, without space around either. False if it has no =. */
bool gb_conf_split(char *text, char **ret_name, char **ret_value);

/* Each returns a clause about the text, which says what would be right, or NULL. The clauses are static. */

/* Of a value in quotes, which would be part of it. */
const char *gb_conf_quotes(const char *value, size_t n);
/* Of a path with quotes around it, a ~ before it or a $NAME in it. */
const char *gb_conf_path(const char *path, size_t n);
/* Of a file's first bytes, if these are a mark of its encoding. */
const char *gb_conf_mark(const char *text);

#endif
