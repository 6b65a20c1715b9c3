"""Will the flight arrive more than 15 minutes late, from what is known when it takes off?"""
