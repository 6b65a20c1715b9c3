"""Does a complaint go with a TypeError or with a ValueError, from its words alone?"""
