/* Columns of numbers follow a list of the model's: what a table lacks is added when the database is opened. */
#ifndef GB_STORE_COLUMNS_H
#define GB_STORE_COLUMNS_H

#include "store/db.h"

#define GB_COLUMNS_MAX 256

struct gb_columns {
    unsigned n;
    struct {
        char name[64];
        const char *type; /* with its constraints; outlives this */
    } column[GB_COLUMNS_MAX];
};

/* name and suffix: at most 63 bytes together. */
void gb_columns_want(struct gb_columns *columns, const char *name, const char *suffix, const char *type);

/* Inside a transaction. A table without rows is made again, wanted columns first: SQLite reads the whole schema again
 * for each column that is added, which made up most of the first start. */
int gb_columns_add(sqlite3 *db, const char *table, const struct gb_columns *wanted, struct gb_error *err);

#endif
