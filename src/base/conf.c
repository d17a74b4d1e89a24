#include "base/conf.h"

#include <ctype.h>
#include <string.h>

char *gb_conf_trim(char *line) {
    char *end;
    char *p;

    for (p = line; *p != '\0'; p++)
        if (*p == '#' && (p == line || isspace((unsigned char)p[-1])))
            *p = '\0';
    while (isspace((unsigned char)*line))
        line++;
    end = line + strlen(line);
    while (end > line && isspace((unsigned char)end[-1]))
        *--end = '\0';
    return line;
}

/* Typewriter's quotes, a backtick, and those of text processors in UTF-8. */
static size_t quote_at(const char *s, size_t n) {
    static const char *const quotes[] = {"\"",     "'",      "`",      "\u2018", "\u2019",
                                         "\u201c", "\u201d", "\u201e", "\u00ab", "\u00bb"};
    size_t i;

    for (i = 0; i < sizeof(quotes) / sizeof(quotes[0]); i++) {
        size_t len = strlen(quotes[i]);

        if (n >= len && memcmp(s, quotes[i], len) == 0)
            return len;
    }
    return 0;
}

const char *gb_conf_quotes(const char *value, size_t n) {
    return quote_at(value, n) > 0 ? "stands in quotes, which would be part of it: write it without them" : NULL;
}

/* $NAME, ${NAME} or $(COMMAND). */
static bool has_variable(const char *s, size_t n) {
    size_t i;

    for (i = 0; i + 1 < n; i++)
        if (s[i] == '$' && (isalpha((unsigned char)s[i + 1]) || strchr("_{(", s[i + 1]) != NULL))
            return true;
    return false;
}

const char *gb_conf_path(const char *path, size_t n) {
    if (quote_at(path, n) > 0)
        return gb_conf_quotes(path, n);
    if (n > 0 && path[0] == '~')
        return "begins with ~, which only a shell replaces by a home folder: write the whole path, or ./~ for a name "
               "that "
               "begins so";
    if (n > 0 && memchr(path, '"', n) != NULL)
        return "has quotes in it, which would be part of it: write it without them";
    return has_variable(path, n) ? "has a variable, which only a shell replaces: write what it stands for" : NULL;
}

const char *gb_conf_mark(const char *text) {
    if (strncmp(text, "\xef\xbb\xbf", 3) == 0)
        return "begins with a byte-order mark (EF BB BF): save it as UTF-8 without one";
    if (strncmp(text, "\xff\xfe", 2) == 0 || strncmp(text, "\xfe\xff", 2) == 0)
        return "begins with the byte-order mark of UTF-16: save it as UTF-8 without one";
    return NULL;
}

bool gb_conf_split(char *text, char **ret_name, char **ret_value) {
    char *value = strchr(text, '=');

    if (value == NULL)
        return false;
    *value++ = '\0';
    *ret_name = gb_conf_trim(text);
    *ret_value = gb_conf_trim(value);
    return true;
}
