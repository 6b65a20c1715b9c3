"""Will the trip lose more than a fifth of its time in the air, from place, clock and weather at the gate?"""
