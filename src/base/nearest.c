#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

#define FAR 3   /* changes, from which on two words have nothing to do with each other */
#define SHORT 6 /* letters; of shorter words two changes make another word: sort, cert */

static int least(int a, int b) {
    return a < b ? a : b;
}

void gb_nearest_begin(struct gb_nearest *nearest, const char *word, size_t length) {
    nearest->word = word;
    nearest->length = length > GB_NEAREST_MAX ? 0 : (int)length;
    nearest->name = NULL;
    /* Every word of two letters is two changes from every other. */
    nearest->changes = least(nearest->length < SHORT ? 2 : FAR, nearest->length);
}

/* The optimal string alignment of a[0..m) and b, from three rows of its table. */
static int distance(const char *a, int m, const char *b) {
    int rows[3][GB_NEAREST_MAX + 1];
    int n = (int)strlen(b);
    int i;
    int j;

    for (j = 0; j <= n; j++)
        rows[0][j] = j;
    for (i = 1; i <= m; i++) {
        int *row = rows[i % 3];
        const int *above = rows[(i + 2) % 3];
        const int *before = rows[(i + 1) % 3];

        row[0] = i;
        for (j = 1; j <= n; j++) {
            row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return rows[m % 3][n];
}

void gb_nearest_try(struct gb_nearest *nearest, const char *name) {
    int changes;

    if (nearest->changes == 0 || strlen(name) > GB_NEAREST_MAX)
        return;
    changes = distance(nearest->word, nearest->length, name);
    if (changes >= nearest->changes)
        return;
    nearest->changes = changes;
    nearest->name = name;
}

char *gb_nearest_hint(const struct gb_nearest *nearest, const char *before, char text[GB_NEAREST_HINT]) {
    text[0] = '\0';
    if (nearest->name != NULL)
        snprintf(text, GB_NEAREST_HINT, "; is %s%s meant?", before, nearest->name);
    return text;
}
