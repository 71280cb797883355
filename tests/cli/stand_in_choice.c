/* The command linked against the stand-in for a GPU: STAND_IN_DEFECT, a number of enum
 * stand_in_defect, selects the stand-in's defect. */
#include <stdlib.h>

#include "../reference/stand_in.h"

__attribute__((constructor)) static void choose_defect(void) {
    const char *number = getenv("STAND_IN_DEFECT");
    if (number)
        stand_in_defect = (enum stand_in_defect)strtol(number, NULL, 10);
}
