/* The grammar that the fault options share: rules with commas between them, each OP[@N][+]=WHAT. */
#ifndef GB_BASE_RULE_H
#define GB_BASE_RULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One rule, in parts of the text that it was read from. */
struct gb_rule {
    const char *text;
    size_t len;
    size_t op_len;  /* OP begins the text */
    uint64_t first; /* the calls that it is for, from 1; 0: what stands behind '@' is no such number */
    uint64_t last;
    const char *what;
    size_t what_len;
};

/* How many rules the text has at most. */
size_t gb_rules_count(const char *text, size_t len);

/* The rule at *at, which moves behind it. Returns false at the end of the text; an empty text has no rule. A rule
 * without '=' has what NULL. */
bool gb_rules_next(const char *text, size_t len, size_t *at, struct gb_rule *ret);

#endif
