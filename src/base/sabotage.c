// SPDX-License-Identifier: MPL-2.0
#include "base/sabotage.h"

#ifdef HOLDFAST_SABOTAGE
enum sabotage sabotage_on = SABOTAGE_NONE;
#else
typedef int sabotage_is_compiled_out;
#endif
