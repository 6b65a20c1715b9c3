"""Was the aircraft built in 2000 or later, from the rest of its entry in the register?"""
